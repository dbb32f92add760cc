// Package websocket is WebSocket, RFC 6455, as one codec among others: the handler of a line
// protocol serves browsers, too, once its listener has a Codec of this package.
//
//	srv := &loop.Server{
//		Addr:   "tcp://:8080",
//		Codec:  &websocket.Codec{HTTP: http.FileServerFS(page)},
//		Accept: accept,
//	}
//
// And it speaks to the servers of others, if a loop.Dialer has a Client as its codec:
//
//	ws := &websocket.Client{URL: "wss://example.com/chat"}
//	loop.Dialer{Codec: ws, TLS: ws.TLS()}.Dial(l, ws.Addr(), open)
//
// Messages arrive at OnMessage whole, whatever fragments they came in, and Conn.Send sends one.
// Pings are answered, closes are answered, and what breaks the protocol closes the connection with
// the code that the RFC gives for it; none of that needs the handler. How long a peer may take for
// a message, in however many fragments, is for Server.Timeouts.Frame to say.
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
// (or binary, if the Codec or the Client says so), SendText and SendBinary send what they say, Ping
// sends a ping, Close closes with a code. Messages that are sent before the handshake is done are
// kept, and go out after it: a handler that greets from Accept greets browsers, too.
//
// # A client's connection
//
// A Dialer with a Client calls its open function when the handshake is done, or has failed, with a
// *HandshakeError if the server has refused.
//
// So does handler.Redial, which comes back after that. A connection that runs, such as one through
// a proxy that has answered CONNECT, becomes a WebSocket by Conn.SetCodec; then OnOpen tells when.
//
// # How it ends
//
// OnClose gets a *CloseError if the peer closed (it is io.EOF to errors.Is as well) or broke the
// protocol; a *HandshakeError if there was no WebSocket in the end; ErrHTTP after a plain request.
// In the other direction, whatever closes a connection (Conn.Close, an error of OnMessage, an idle
// timeout, the drain), the peer gets a close frame: with the code of a *CloseError if that is the
// reason, or as Codec.Status says.
package websocket
