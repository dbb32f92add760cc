// Package loop runs servers for custom protocols on event loops. Each loop owns a timing wheel.
//
// A Server accepts connections and distributes them over its loops. A Conn lives on one Loop, from
// its first byte to OnClose unless MoveTo moves it. That loop's goroutine handles everything that
// concerns the connection, one event at a time: messages, timers, idle hooks, and functions sent
// from other goroutines. So the fields of its Handler are its state and need no lock: a connection
// is an actor.
//
// The one rule: touch a Conn, its Handler, its timers and the Loop only from that loop. Anywhere
// else, hold a Ref and call Tell, or call Post on the Loop. In builds with the race detector, a
// call from another goroutine panics, even without a data race.
//
// A callback must not block: its loop serves other connections. Pass blocking calls to Offload,
// which runs them on another goroutine and passes the result to a function on the loop:
//
//	func (h *session) OnMessage(c *loop.Conn, msg []byte) error {
//		key := string(msg) // msg is valid until OnMessage returns
//		return loop.Offload(c, func(ctx context.Context) []byte {
//			return database.Get(ctx, key)
//		}, func(c *loop.Conn, value []byte) {
//			_ = c.Send(value)
//		})
//	}
package loop
