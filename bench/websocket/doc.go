// Package websocket tests package codec/websocket with the clients and servers that people use:
// gorilla/websocket, coder/websocket, gobwas/ws, npm's ws.
package websocket
