// Package looptest tests handlers without sockets and without waiting, as net/http/httptest does
// for HTTP. It replaces the network with memory, and the clock with the virtual time of
// testing/synctest.
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
// The server, its loops, wheels, mailboxes, limits and drain are the real ones. The package
// replaces only gnet and the kernel: accepting, reading, writing, and waking. Each loop is a
// goroutine of the bubble.
//
// Messages are overwritten when OnMessage returns (as with loop.Server.Debug.Strict), so that a
// handler that keeps borrowed bytes fails its tests. Calls from the wrong goroutine are detected
// with loop.Server.Debug.Strict, and in builds with the race detector.
//
// A peer reads everything that is sent to it, but not at once: a socket buffers 208 KiB, as on
// Linux, and accepts more when the loop's turn is over. So a program that hangs on a real socket
// hangs here, too. See Peer.Block for peers that do not read.
//
// All functions must be called inside a bubble, from goroutines other than the loops'. A function
// that causes something waits for the effects (synctest.Wait), unless the loop is stalled.
package looptest
