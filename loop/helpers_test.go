package loop_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// with returns an Accept that calls setup and does nothing else.
func with(setup func(c *loop.Conn)) func(*loop.Conn) loop.Handler {
	return func(c *loop.Conn) loop.Handler {
		setup(c)
		return script{}
	}
}

// tell runs f for the connection of p on its loop, and waits for that. It finds the connection by
// its address.
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
