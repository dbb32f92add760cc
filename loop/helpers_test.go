package loop_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// script is a Handler made of functions, either of which may be nil.
type script struct {
	message func(c *loop.Conn, msg []byte) error
	close   func(c *loop.Conn, err error)
}

func (s script) OnMessage(c *loop.Conn, msg []byte) error {
	if s.message == nil {
		return nil
	}
	return s.message(c, msg)
}

func (s script) OnClose(c *loop.Conn, err error) {
	if s.close != nil {
		s.close(c, err)
	}
}

// silent accepts connections and does nothing with them.
func silent(*loop.Conn) loop.Handler { return script{} }

// with returns an Accept that calls setup and does nothing else.
func with(setup func(c *loop.Conn)) func(*loop.Conn) loop.Handler {
	return func(c *loop.Conn) loop.Handler {
		setup(c)
		return script{}
	}
}

// bubble runs f in virtual time with a server of one loop, unless srv says otherwise.
func bubble(t *testing.T, srv *loop.Server, f func(t *testing.T, srv *looptest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if srv.NumLoops == 0 {
			srv.NumLoops = 1
		}
		if srv.Accept == nil {
			srv.Accept = silent
		}
		f(t, looptest.Start(t, srv))
	})
}

// wait lets virtual time pass, and what that causes happen.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// tell runs f for the connection of p on its loop, and waits for that. It finds the connection by its address.
func tell(srv *looptest.Server, p *looptest.Peer, f func(c *loop.Conn)) {
	for i := range srv.Loops() {
		srv.Do(i, func(l *loop.Loop) {
			for c := range l.Conns() {
				if c.RemoteAddr() == p.Addr() {
					f(c)
				}
			}
		})
	}
}

// journal notes what happened, and when.
type journal struct {
	began   time.Time
	mu      sync.Mutex // the race detector does not know that virtual time orders what happens
	entries []string
}

func newJournal() *journal { return &journal{began: time.Now()} }

func (j *journal) add(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, s)
}

// at adds s with the virtual time since the journal began.
func (j *journal) at(s string) { j.add(time.Since(j.began).String() + " " + s) }

func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range max(len(want), len(j.entries)) {
		var g, w string
		if i < len(j.entries) {
			g = j.entries[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Fatalf("entry %d is %q, want %q\nall: %q\nwant: %q", i, g, w, j.entries, want)
		}
	}
}

// panics returns what f panics with, or nil.
func panics(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// mustPanicWith fails unless f panics with a string that contains what.
func mustPanicWith(t *testing.T, what string, f func()) {
	t.Helper()
	if s, ok := panics(f).(string); !ok || !strings.Contains(s, what) {
		t.Errorf("panicked with %q, want something with %q", s, what)
	}
}
