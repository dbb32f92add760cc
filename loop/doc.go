// Package loop runs servers for protocols of your own on event loops, each of which owns a timing
// wheel.
//
// A [Server] accepts connections and spreads them over its loops. A [Conn] lives on one [Loop] from
// its first byte to OnClose, and everything that happens to it (messages, timers, idle hooks,
// functions told to it from elsewhere) happens on that loop's goroutine, one at a time. So the
// fields of its [Handler] are its state and need no lock: a connection is an actor.
//
// The one rule: only its loop may touch a Conn, its Handler, its timers and the Loop. Anywhere
// else, hold a [Ref] and Tell, or Post to the Loop. Builds with the race detector panic on a touch
// from elsewhere, with or without a collision.
//
// Nothing in a callback may block: the loop has other connections. Give a call that must block to
// [Offload], which runs it on a goroutine of its own and then its result on the loop:
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
