// Package websocket is the server's side of WebSocket, RFC 6455, as one codec among others: the
// handler of a line protocol serves browsers, too, once its listener has this codec.
//
//	srv := &loop.Server{
//		Addr:   "tcp://:8080",
//		Codec:  &websocket.Codec{HTTP: http.FileServerFS(page)},
//		Accept: accept,
//	}
//
// Messages arrive at OnMessage whole, whatever fragments they came in, and Conn.Send sends one.
// Pings are answered, closes are answered, and what breaks the protocol closes the connection with
// the code that the RFC gives for it; none of that needs the handler. How long a peer may take for
// a message, in however many fragments, is for Server.FrameTimeout to say.
//
// # The connection
//
// Each connection has a codec of its own, a *Conn, which tells what only WebSocket has:
//
//	func accept(c *loop.Conn) loop.Handler {
//		ws := websocket.Of(c)
//		h := &session{}
//		ws.OnOpen = func(r *http.Request) error { // the handshake is done
//			h.user = r.URL.Query().Get("user")
//			return c.Send([]byte("hello " + h.user))
//		}
//		return h
//	}
//
// In OnMessage, Of(c).Kind() says whether the message is Text or Binary. To send: c.Send sends text
// (or binary, if the Codec says so), SendText and SendBinary send what they say, Ping sends a ping,
// Close closes with a code. What is sent before the handshake is done is kept, and goes out behind
// the answer to it: a handler that greets from Accept greets browsers, too.
//
// # How it ends
//
// OnClose gets a *CloseError if the peer closed (it is io.EOF to errors.Is as well) or broke the
// protocol; a *HandshakeError if there was no WebSocket in the end; ErrHTTP after a plain request.
// In the other direction, whatever closes a connection (Conn.Close, an error of OnMessage, an idle
// timeout, the drain), the peer gets a close frame: with the code of a *CloseError if that is the
// reason, or as Codec.Status says.
package websocket
