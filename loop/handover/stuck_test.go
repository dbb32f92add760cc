//go:build unix

package handover_test

import (
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// A placed is a counter that says on which loop it is. onSave is called by Save.
type placed struct {
	*counter
	onSave func(c *loop.Conn)
}

func (h placed) Save(c *loop.Conn) ([]byte, error) {
	h.onSave(c)
	return h.counter.Save(c)
}

// twoLoops is a server in charge with two clients on each of two loops. Its Drain.Delay does not
// end within the test.
func twoLoops(t *testing.T, cfg handover.Config, onSave func(c *loop.Conn)) (srv *loop.Server, clients [2][]*client) {
	t.Helper()
	srv = lines("a")
	srv.Drain.Delay = patience
	on := make(chan int, 1)
	srv.Accept = func(c *loop.Conn) loop.Handler {
		on <- c.Loop().Index()
		return placed{accept("a")(c).(*counter), onSave}
	}
	if _, err := open(t, srv, cfg); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		c := dial(t, srv)
		l := testkit.Receive(t, "a client is accepted", on)
		clients[l] = append(clients[l], c)
		c.say("one\n")
		c.hears("a 1 one")
	}
	for l, c := range clients {
		if len(c) != 2 {
			t.Fatalf("loop %d has %d clients, want 2", l, len(c))
		}
	}
	return srv, clients
}

// A loop whose callback does not return holds up no handover: its connections stay, and the old
// process serves them when the callback has returned. Those of other loops move.
func TestBlockedLoopStays(t *testing.T) {
	for index := range 2 {
		cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), Timeout: 500 * time.Millisecond}
		a, clients := twoLoops(t, cfg, func(*loop.Conn) {})
		hold := make(chan struct{})
		goOn := sync.OnceFunc(func() { close(hold) })
		defer goOn()
		_ = a.Loops()[index].Post(func() { <-hold })
		b, err := open(t, lines("b"), cfg)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Want(t, "moved", b.report.Moved, 2)
		testkit.Want(t, "stayed with a blocked loop", b.report.Stayed["loop blocked"], 2)
		newcomer := dial(t, a)
		newcomer.say("one\n")
		newcomer.hears("b 1 one")
		for _, c := range clients[1-index] {
			c.say("two\n")
			c.hears("b 2 two")
		}
		goOn()
		for _, c := range clients[index] {
			c.say("two\n")
			c.hears("a 2 two")
		}
	}
}

// A loop that blocks when connections of another one are on their way holds these up for no longer
// than Timeout.
func TestLoopBlocksMeanwhile(t *testing.T) {
	const timeout = time.Second
	var a *loop.Server
	var saves atomic.Int32
	hold := make(chan struct{})
	defer close(hold)
	cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), Timeout: timeout}
	a, clients := twoLoops(t, cfg, func(c *loop.Conn) {
		if c.Loop().Index() == 0 && saves.Add(1) == 3 { // two are for the rehearsal
			_ = a.Loops()[1].Post(func() { <-hold })
		}
	})
	b, err := open(t, lines("b"), cfg)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Want(t, "moved", b.report.Moved, 2)
	if b.report.Longest > timeout {
		t.Errorf("a connection paused for %v, want at most %v", b.report.Longest, timeout)
	}
	for _, c := range clients[0] {
		c.say("two\n")
		c.hears("b 2 two")
	}
}

// With a State, which moves with all connections or not at all, nothing moves while a loop is
// blocked, from before the handover or from the time when others are on their way.
func TestStateAndABlockedLoop(t *testing.T) {
	for name, meanwhile := range map[string]bool{"before": false, "meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			var a *loop.Server
			var saves atomic.Int32
			notes, hold := &notebook{}, make(chan struct{})
			cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), Timeout: 500 * time.Millisecond, State: notes}
			a, clients := twoLoops(t, cfg, func(c *loop.Conn) {
				if meanwhile && c.Loop().Index() == 0 && saves.Add(1) == 3 {
					_ = a.Loops()[1].Post(func() { <-hold })
				}
			})
			if !meanwhile {
				_ = a.Loops()[1].Post(func() { <-hold })
			}
			_, err := open(t, lines("b"), cfg)
			if want := "an event loop is blocked, as its log says: its 2 connections"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			clients[0][0].say("two\n")
			clients[0][0].hears("a 2 two")
			close(hold)
			clients[1][0].say("two\n")
			clients[1][0].hears("a 2 two")
			testkit.Eventually(t, "the State is thawed", func() bool { return notes.thawed.Load() == notes.frozen.Load() })
			b, err := open(t, lines("b"), cfg)
			if err != nil {
				t.Fatal(err)
			}
			testkit.Want(t, "moved", b.report.Moved, 4)
		})
	}
}
