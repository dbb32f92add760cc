// Package websocket tests package codec/websocket with the clients that people use
// (gorilla/websocket, coder/websocket, npm's ws), and measures a chat of ten thousand beside one on
// gorilla/websocket.
package websocket
