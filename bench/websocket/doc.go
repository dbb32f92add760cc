// Package websocket tests package codec/websocket with the clients and servers that people use
// (gorilla/websocket, coder/websocket, gobwas/ws, npm's ws), and measures frames, and a chat of ten
// thousand, beside gorilla/websocket.
package websocket
