package looptest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// A Server is a loop.Server that runs in memory.
type Server struct {
	*loop.Server
	t      testing.TB
	memory *memory
	log    testLog
	cancel context.CancelFunc

	asked   atomic.Bool   // Stop was called
	waiting chan struct{} // holds a value while a goroutine of the bubble is in synctest.Wait, which only one may be
}

// waiting are those channels by test, of which each has one bubble.
var waiting sync.Map

func waitingOf(t testing.TB) chan struct{} {
	ch, known := waiting.LoadOrStore(t, make(chan struct{}, 1))
	if !known {
		t.Cleanup(func() { waiting.Delete(t) })
	}
	return ch.(chan struct{})
}

// Start starts srv in memory. srv.Addr may be empty. If srv has no Logger, its warnings and errors,
// such as the stack of a handler that panicked, are written to the test's output. The server is
// drained when the test ends, unless Stop was called before; the test fails if the drain cuts
// connections. If srv cannot start, the test fails at once.
func Start(t testing.TB, srv *loop.Server) *Server {
	t.Helper()
	s, err := TryStart(t, srv)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TryStart is like Start for servers that may fail to start.
func TryStart(t testing.TB, srv *loop.Server) (*Server, error) {
	t.Helper()
	if srv.Addr == "" && srv.Accept != nil {
		srv.Addr = "tcp://127.0.0.1:0"
	}
	s := &Server{Server: srv, t: t, memory: newMemory(), waiting: waitingOf(t)}
	s.log.logTo(t.Output(), &srv.Logger)
	srv.Accept = recording(srv.Accept)
	for i := range srv.Listeners {
		srv.Listeners[i].Accept = recording(srv.Listeners[i].Accept)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	if err := srv.Start(testhook.WithEngine(ctx, s.memory)); err != nil {
		cancel()
		return nil, err
	}
	t.Cleanup(s.stopUnasked)
	s.waitIdle()
	return s, nil
}

// recording makes accept note why connections close.
func recording(accept loop.Accept) loop.Accept {
	if accept == nil {
		return nil
	}
	return func(c *loop.Conn) loop.Handler {
		sock, ok := testhook.SocketOf(c).(*socket)
		if !ok {
			return accept(c) // UDP
		}
		accepted := false
		c.AfterClose(func(err error) {
			if accepted {
				sock.finished(err)
			}
		})
		h := accept(c)
		accepted = h != nil
		return h
	}
}

// Stop drains the server, waits until the peers have received all, and returns the result of Wait.
// It may be called several times, from any goroutine of the test.
func (s *Server) Stop() error {
	s.asked.Store(true)
	s.Shutdown()
	defer s.log.end()
	err := s.Wait()
	s.waitIdle() // over TLS a goroutine decrypts what came last
	return err
}

// stopUnasked is Stop for a test that has not called it.
func (s *Server) stopUnasked() {
	if s.asked.Load() {
		return
	}
	if err := s.Stop(); err != nil {
		s.t.Errorf("looptest: the server ended with: %v", err)
	}
}

// Shutdown begins the drain, as the end of Start's context does, without waiting for it to finish.
func (s *Server) Shutdown() {
	s.cancel()
	s.waitIdle()
}

// Open connects to Server.Addr.
func (s *Server) Open() *Peer { return s.OpenTo(0) }

// OpenTo connects to the i-th of Server.Addrs. The connection may be refused: see Peer.Closed.
func (s *Server) OpenTo(i int) *Peer {
	s.t.Helper()
	p, err := s.tryOpen(i, s.memory.newAddr())
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// OpenFrom is like OpenTo for a peer with an IP address: Conn.RemoteAddr is a *net.TCPAddr, as on a
// real socket, and Server.Limits.MaxConnsPerIP counts it. Several peers may have the same address.
func (s *Server) OpenFrom(i int, remote netip.AddrPort) *Peer {
	s.t.Helper()
	p, err := s.tryOpen(i, net.TCPAddrFromAddrPort(remote))
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// TryOpen is like Open for servers that may no longer be listening.
func (s *Server) TryOpen() (*Peer, error) { return s.tryOpen(0, s.memory.newAddr()) }

func (s *Server) tryOpen(i int, remote net.Addr) (*Peer, error) {
	addr := s.Addrs()[i]
	p, err := s.memory.dial(addr, remote)
	if err != nil {
		return nil, fmt.Errorf("looptest: cannot connect to %v: %w", addr, err)
	}
	p.settle = s.waitIdle
	s.waitIdle()
	return p, nil
}

// Sleep lets virtual time pass and waits for the effects. Unlike time.Sleep, it also synchronizes
// memory in both directions: after it, the test may read what callbacks wrote, and callbacks may
// write what the test has read before.
func (s *Server) Sleep(d time.Duration) {
	for _, l := range s.memory.loops {
		l.Execute(func() {}) // which orders memory
	}
	time.Sleep(d)
	s.waitIdle()
}

// settle waits until all goroutines of the bubble are blocked. Several goroutines of a test may
// call it at a time, also for different Servers. A mutex would not do in place of the channel: a
// goroutine that waits for a mutex does not count as blocked.
func (s *Server) waitIdle() {
	s.waiting <- struct{}{}
	synctest.Wait()
	<-s.waiting
}

// Do runs f on the i-th loop and waits until it returns. Do also returns if f panics.
func (s *Server) Do(i int, f func(l *loop.Loop)) {
	s.t.Helper()
	l := s.Loops()[i]
	done := make(chan struct{})
	if err := l.Post(func() { defer close(done); f(l) }); err != nil {
		s.t.Fatalf("looptest: Do: %v", err)
	}
	<-done
	s.waitIdle()
}

// Stall blocks the i-th loop, as a callback that does not return would, until resume is called.
// Meanwhile input and new connections wait. Time can pass; it counts as one slow turn of the loop
// (LoopStats.Turn).
func (s *Server) Stall(i int) (resume func()) {
	blocked := make(chan struct{})
	l := s.Loops()[i]
	s.memory.loops[i].Execute(func() { testhook.InTurn(l, func() { <-blocked }) })
	s.waitIdle()
	return sync.OnceFunc(func() {
		close(blocked)
		s.waitIdle()
	})
}

// FailAccept makes the next Accept of the i-th listener fail with err, as when the process is out
// of descriptors.
func (s *Server) FailAccept(i int, err error) {
	ln := s.memory.listener(s.Addrs()[i])
	if ln == nil {
		s.t.Fatal("looptest: FailAccept: the listener is closed")
	}
	ln.fail <- err
	s.waitIdle()
}

// BreakLoop ends the i-th loop with err, as a system error would.
func (s *Server) BreakLoop(i int, err error) {
	s.memory.loops[i].fail(err)
	s.waitIdle()
}

// BlindWrites makes sockets unable to report that they are writable again, as on systems without a
// poller.
func (s *Server) BlindWrites() { s.memory.blind.Store(true) }

// Addr is the network address of a Peer that was not opened with OpenFrom. It has no IP.
type Addr struct{ n int }

// Network returns "memory".
func (*Addr) Network() string { return "memory" }

// String returns a name that is unique in the test.
func (a *Addr) String() string { return fmt.Sprintf("peer-%d", a.n) }
