package netengine

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A gated connection takes output when the test says so. It has no input.
type gated struct {
	net.Conn
	begun, goOn chan struct{}
}

func (g gated) Write(p []byte) (int, error) {
	g.begun <- struct{}{}
	<-g.goOn
	return len(p), nil
}

// A waker is a sink that passes on Writable.
type waker struct {
	engine.Sink
	woken chan struct{}
}

func (w waker) Writable() { w.woken <- struct{}{} }

// A loop that finds a socket full is notified when there is room, also when the writer ends at that
// instant. The test holds the lock for longer than a millisecond, after which Go's mutex serves its
// waiters in turn: the writer, the loop, and the writer again if it let go in between.
func TestWritableComesFromAWriterThatEnds(t *testing.T) {
	e := New()
	l := &netLoop{e.Run(time.Now(), nil), e}
	var running sync.WaitGroup
	conn := gated{begun: make(chan struct{}), goOn: make(chan struct{})}
	w := waker{woken: make(chan struct{}, 1)}
	s := newSocket(l, conn)
	s.sink = w
	longEnough := func() { time.Sleep(2 * time.Millisecond) } // no event: the order of those that wait for a lock
	for round := range 20 {
		if n, err := s.Write(make([]byte, maxUnsent)); n != maxUnsent || err != nil {
			t.Fatal(n, err)
		}
		<-conn.begun
		if n, err := s.Write([]byte("x")); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		s.mu.Lock()
		conn.goOn <- struct{}{}
		longEnough()
		running.Go(func() { s.NotifyWritable() })
		longEnough()
		s.mu.Unlock()
		s.mu.Lock()
		longEnough()
		s.mu.Unlock()
		testkit.Receive(t, fmt.Sprintf("round %d: the loop is told of room", round), w.woken)
	}
	running.Wait()
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}

// An end is a sink that passes on Closed.
type end struct {
	engine.Sink
	closed chan error
}

func (e end) Ended(err error) { e.closed <- err }

// A failed write takes the error of a reset, and the reader finds an end: the sink gets the
// reset all the same.
func TestResetDuringAWriteIsNoEnd(t *testing.T) {
	e := New()
	l := &netLoop{e.Run(time.Now(), nil), e}
	ln := testkit.Serve(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	})
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, sink := newSocket(l, conn), end{closed: make(chan error, 1)}
	testkit.Eventually(t, "a write fails", func() bool { _, err := s.Write([]byte("x")); return err != nil })
	l.Execute(func() { s.begin(func(engine.Socket) engine.Sink { return sink }) })
	testkit.WantErr(t, "the end", testkit.Receive(t, "the end", sink.closed), syscall.ECONNRESET)
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}
