// Package resp is the Redis serialization protocol, RESP2 and RESP3, for both ends: Server decodes
// the requests that clients send, Client the replies of a server, and the Append functions write
// both.
//
//	srv := &loop.Server{
//		Addr:  "tcp://127.0.0.1:6380",
//		Codec: resp.Server{},
//		Accept: func(c *loop.Conn) loop.Handler {
//			requests := resp.Of(c)
//			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
//				return c.Send(resp.AppendBulk(nil, requests.Args()[0]))
//			})
//		},
//	}
//
// A request is an array of bulk strings, or a line of words as one types it into netcat:
//
//	*2\r\n$3\r\nGET\r\n$1\r\nk\r\n        the arguments "GET" "k"
//	GET k\r\n                            the same, inline
//
// The frame that a handler gets is the request as it came over the wire, of which it seldom needs
// anything: what the codec has found in it are the arguments, which Requests.Args returns. They
// are pieces of the frame, not copies, and valid for as long as that is.
//
// The protocol is described at https://redis.io/docs/latest/develop/reference/protocol-spec/; the
// limits, and the words in which a bad request is refused, are those of redis-server.
package resp
