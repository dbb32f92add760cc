// Package websocket implements RFC 6455 as a codec, so that the handler of any other protocol can
// serve browsers, too.
//
//	srv := &loop.Server{
//		Addr:   "tcp://:8080",
//		Codec:  &websocket.Codec{HTTP: http.FileServerFS(page)},
//		Accept: accept,
//	}
//
// A loop.Dialer whose codec is a Client connects to WebSocket servers:
//
//	ws := &websocket.Client{URL: "wss://example.com/chat"}
//	loop.Dialer{Codec: ws, TLS: ws.TLS()}.Dial(l, ws.Addr(), open)
//
// OnMessage gets whole messages, whatever fragments they came in, and Conn.Send sends one. The
// codec answers pings and closes by itself, and closes a connection whose peer breaks the protocol
// with the code that the RFC specifies. Server.Timeouts.Frame bounds the time for a message, in
// however many fragments.
//
// # The connection
//
// Of returns the Conn of a connection, which has what only WebSocket has:
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
// In OnMessage, Of(c).Kind() is Text or Binary. c.Send sends text, or binary if the Codec or the
// Client has Binary set; SendText and SendBinary choose per message; Ping sends a ping; Close
// closes with a code. Messages sent before the handshake is done, such as a greeting from Accept,
// are kept, up to 64 KiB, and go out after it.
//
// # A client's connection
//
// A Dialer with a Client calls its open function when the handshake is done, or has failed, with a
// *HandshakeError if the server has refused.
//
// handler.Link works the same way: Accept gets the open WebSocket; after a failure State gets the
// error, and the Link dials again. An existing connection, such as one through a proxy that has
// answered CONNECT, becomes a WebSocket by Conn.SetCodec; OnOpen is called when the handshake is
// done.
//
// # How it ends
//
// OnClose gets a *CloseError if the peer closed (also io.EOF to errors.Is) or broke the protocol; a
// *HandshakeError, ErrTimeout or Upgrade's own error if the handshake failed; ErrHTTP after a plain
// request. Whatever closes a connection on our side (Conn.Close, an error of OnMessage, an idle
// timeout, the drain), the peer gets a close frame, with the code of a *CloseError if that is the
// reason, or else of Codec.Status.
package websocket
