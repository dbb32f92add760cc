// Package looptest tests handlers without sockets and without waiting, as net/http/httptest does
// for HTTP: memory in place of the network, and the virtual time of testing/synctest in place of
// the clock.
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
// The server, its loops, wheels, mailboxes, limits and drain are the real ones; only what gnet and
// the kernel do is done here: accepting, reading, writing, waking. Each loop is a goroutine of the
// bubble, so that the owner check of builds with the race detector works, too.
//
// Messages are overwritten when OnMessage returns (as with loop.Server.Debug.Strict): a handler that keeps
// what it was lent shows here. A call from the wrong goroutine shows with loop.Server.Debug.Strict,
// and in builds with the race detector.
//
// A peer reads all that is sent to it, but not at once: a socket takes 208 KiB, as Linux has it,
// and more when the turn of the loop is over. So what hangs on a real socket hangs here. See
// Peer.Block for peers that do not read.
//
// All functions must be called inside a bubble, from goroutines other than the loops'. Those that
// cause something wait until it has had its effects (synctest.Wait), unless the loop is stalled.
package looptest
