// Package looptest tests handlers without sockets and without waiting, as net/http/httptest does
// for HTTP. Memory replaces the network, and the virtual time of testing/synctest replaces the
// clock.
//
//	func TestGreeting(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			srv := looptest.Start(t, &loop.Server{Codec: codec.Lines{}, Accept: accept})
//			p := srv.Open()
//			p.Send("hello\n")
//			if got := p.Received(); got != "hi\n" {
//				t.Errorf("got %q", got)
//			}
//			srv.Sleep(time.Hour) // takes no time
//			if !errors.Is(p.Reason(), loop.ErrIdle) {
//				t.Errorf("closed with %v", p.Reason())
//			}
//		})
//	}
//
// The server, its loops, wheels, mailboxes, limits and drain are the real ones; looptest replaces
// only gnet and the kernel: accepting, reading, writing and waking. Each loop is a goroutine of the
// synctest bubble, so builds with the race detector also check for calls from other goroutines, as
// does loop.Server.Debug.Strict.
//
// Messages are overwritten when OnMessage returns (as with loop.Server.Debug.Strict), which exposes
// a handler that keeps one.
//
// A peer reads everything that is sent to it, but not at once: a socket takes 208 KiB, as on Linux,
// and more when the turn of the loop is over. So what blocks on a real socket blocks here. See
// Peer.Block for peers that do not read.
//
// All functions must be called inside a bubble, from goroutines other than the loops'. Functions
// that cause something wait until it has had its effects (synctest.Wait), unless the loop is
// stalled.
package looptest
