//go:build linux && !386 && !s390x

package epoll

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// rig is an engine with the least that it can drive: functions that are run on a loop.
type rig struct {
	*Engine
	t *testing.T

	mu    sync.Mutex
	posts [][]func()

	base  time.Time
	ticks chan time.Duration // when OnTick was called, since base
}

func newRig(t *testing.T, loops int) *rig {
	return &rig{Engine: New(), t: t, posts: make([][]func(), loops), base: time.Now(), ticks: make(chan time.Duration, 1000)}
}

// engines runs f with an engine of so many loops.
func engines(t *testing.T, loops int, f func(t *testing.T, r *rig)) {
	r := newRig(t, loops)
	if err := r.Start(loops, r.base, r); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	f(t, r)
}

func (*rig) OnProbe(int) {}

func (r *rig) OnWake(i int) {
	r.mu.Lock()
	posts := r.posts[i]
	r.posts[i] = nil
	r.mu.Unlock()
	for _, f := range posts {
		f()
	}
}

func (r *rig) OnTick(int) { r.ticks <- r.now() }

func (r *rig) now() time.Duration { return time.Since(r.base) }

func (r *rig) Ended(i int, err error) { r.t.Errorf("loop %d ended: %v", i, err) }

// enroll hands nc to loop 0, and waits until open has returned.
func (r *rig) enroll(nc net.Conn, open func(engine.Socket) engine.Sink) error {
	result := make(chan error, 1)
	r.Enroll(0, nc, func(s engine.Socket) engine.Sink {
		defer func() { result <- nil }()
		return open(s)
	}, func(err error) { result <- err })
	return wait(r.t, result, "enrolling")
}

// do runs f on a loop and waits for it.
func (r *rig) do(i int, f func()) {
	r.t.Helper()
	done := make(chan struct{})
	r.mu.Lock()
	r.posts[i] = append(r.posts[i], func() { defer close(done); f() })
	r.mu.Unlock()
	if err := r.Wake(i); err != nil {
		r.t.Fatal(err)
	}
	wait(r.t, done, "the loop")
}

// patience is how long a test waits for what must come: longer than a busy machine takes for it.
const patience = time.Minute

func wait[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("%s: nothing in %v", what, patience)
	}
	return v
}

// ear is a Sink that notes what it hears.
type ear struct {
	heard    chan string
	writable chan struct{}
	closed   chan error
}

func newEar() *ear {
	return &ear{heard: make(chan string, 1000), writable: make(chan struct{}, 1000), closed: make(chan error, 1)}
}

func (e *ear) Readable(p []byte) { e.heard <- string(p) }
func (e *ear) Writable()         { e.writable <- struct{}{} }
func (e *ear) Closed(err error)  { e.closed <- err }

// listen accepts on the loopback.
func listen(t *testing.T) (addr netip.AddrPort, accepted <-chan *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	conns := make(chan *net.TCPConn, 100)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns <- c.(*net.TCPConn)
		}
	}()
	return ln.Addr().(*net.TCPAddr).AddrPort(), conns
}

// connect connects, and hands the socket to loop 0.
func (r *rig) connect(remote netip.AddrPort, sink engine.Sink) (sock engine.Socket) {
	r.t.Helper()
	nc, err := net.Dial("tcp", remote.String())
	if err == nil {
		err = r.enroll(nc, func(s engine.Socket) engine.Sink {
			sock = s
			return sink
		})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return sock
}

// flood fills a socket, on the loop, and returns how much it has taken.
func (r *rig) flood(s engine.Socket) (n int) {
	p := make([]byte, 32<<10)
	r.do(0, func() {
		for {
			k, err := s.Write(p)
			if n += k; err != nil || k == 0 {
				return
			}
		}
	})
	return n
}

func readFull(t *testing.T, c net.Conn, n int) []byte {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	p := make([]byte, n)
	if _, err := io.ReadFull(c, p); err != nil {
		t.Fatal(err)
	}
	return p
}
