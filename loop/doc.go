// Package loop runs servers for custom protocols on event loops, each of which owns a timing wheel.
//
// A [Server] accepts connections and spreads them over its loops. A [Conn] lives on one [Loop] from
// its first byte to OnClose, and everything that happens to it (messages, timers, idle hooks,
// functions told to it from elsewhere) happens on that loop's goroutine, one at a time. So the
// fields of its [Handler] are its state and need no lock: a connection is an actor.
//
// The one rule: a Conn, its Handler, its timers and its Loop may be used only on that loop. Any
// other goroutine holds a [Ref] and uses Tell, or Post of the Loop. Builds with the race detector
// panic on a use from another goroutine, even if there is no data race.
//
// A callback must not block, because the loop has other connections. Pass a blocking call to
// [Offload], which runs it on a separate goroutine and then its result on the loop:
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
