package engine

// SocketOf returns the Socket below a *loop.Conn, that of a layer of TLS below this, while it is
// open. Package loop sets it, and looptest calls it on the loop.
var SocketOf func(conn any) Socket
