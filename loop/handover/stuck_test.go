//go:build unix

package handover_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

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
		cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), Timeout: time.Second}
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

// A State's method that does not return costs the handover, and not the service. The next handover
// waits until it has returned.
func TestStateHangs(t *testing.T) {
	for _, method := range []string{"Freeze", "Save", "Thaw"} {
		t.Run(method, func(t *testing.T) {
			hold := make(chan struct{})
			notes := &hangingNotes{method: method, hold: hold}
			cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), Timeout: 300 * time.Millisecond, State: notes}
			notes.refuses.Store(method == "Thaw")
			_, clients := twoLoops(t, cfg, func(*loop.Conn) {})
			want := map[string]string{"Thaw": "State.Freeze: no"}[method]
			if want == "" {
				want = "State." + method + " has not returned within Config.Timeout"
			}
			if _, err := open(t, lines("b"), handover.Config{Path: cfg.Path, State: &notebook{}}); err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want %q", err, want)
			}
			clients[0][0].say("two\n")
			clients[0][0].hears("a 2 two")
			got := make(chan error, 1)
			var b *node
			go func() {
				var err error
				b, err = open(t, lines("b"), handover.Config{Path: cfg.Path, State: &notebook{}})
				got <- err
			}()
			select {
			case err := <-got:
				t.Fatalf("the next handover ends with %v while State.%s runs", err, method)
			case <-time.After(500 * time.Millisecond):
			}
			notes.refuses.Store(false)
			close(hold)
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			testkit.Want(t, "moved", b.report.Moved, 4)
			testkit.Want(t, "calls of Thaw", notes.thawed.Load(), 1)
			if n := notes.atOnce.Load(); n > 0 {
				t.Errorf("%d methods were called while another ran", n)
			}
			clients[0][0].say("three\n")
			clients[0][0].hears("b 3 three")
		})
	}
}

// hangingNotes are a State of which a method hangs.
type hangingNotes struct {
	notebook
	method  string
	hold    chan struct{}
	refuses atomic.Bool
	running atomic.Bool
	atOnce  atomic.Int32
}

func (n *hangingNotes) call(method string, f func() error) error {
	if !n.running.CompareAndSwap(false, true) {
		n.atOnce.Add(1)
	}
	defer n.running.Store(false)
	if method == n.method {
		<-n.hold
	}
	return f()
}

func (n *hangingNotes) Freeze() error {
	return n.call("Freeze", func() error {
		if n.refuses.Load() {
			return errors.New("no")
		}
		return nil
	})
}
func (n *hangingNotes) Thaw() { _ = n.call("Thaw", func() error { n.notebook.Thaw(); return nil }) }
func (n *hangingNotes) Save(w io.Writer) error {
	return n.call("Save", func() error { return n.notebook.Save(w) })
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

// A new process whose Accept does not return before it is in charge, of a copy or of a connection
// that moves with a State, gives up; the old one goes on. What was accepted is dropped later.
func TestBlockedInAccept(t *testing.T) {
	for call, name := range []string{"of a copy", "with a State"} {
		t.Run(name, func(t *testing.T) {
			cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), Timeout: 500 * time.Millisecond, State: &notebook{}}
			a, b := lines("a"), lines("b")
			if _, err := open(t, a, cfg); err != nil {
				t.Fatal(err)
			}
			c := dial(t, a)
			c.say("one\n")
			c.hears("a 1 one")
			var calls atomic.Int32
			hold, ends := make(chan struct{}), make(chan error, 2)
			goOn := sync.OnceFunc(func() { close(hold) })
			defer goOn()
			b.Logger = zerolog.Nop()
			b.Accept = func(c *loop.Conn) loop.Handler {
				h := accept("b")(c).(*counter)
				if h.ends = ends; int(calls.Add(1)) == call+1 {
					<-hold
				}
				return h
			}
			h, err := handover.Open(t.Context(), b, cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = h.Close() })
			ready := make(chan error, 1)
			go func() {
				_, err := h.Ready(t.Context())
				ready <- err
			}()
			if testkit.Receive(t, "Ready returns", ready) == nil {
				t.Error("the new process takes over")
			}
			c.say("two\n")
			c.hears("a 2 two")
			goOn()
			for range call + 1 {
				if err := testkit.Receive(t, "OnClose", ends); !errors.Is(err, handover.ErrNotTaken) {
					t.Errorf("OnClose got %v, want ErrNotTaken", err)
				}
			}
		})
	}
}

// Run of a process that has retired gives up on a job and on a callback that do not return, as
// Server.Wait does, and says which loop does not end.
func TestRunGivesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes Wait's limits, 5 s each")
	}
	for _, row := range []struct {
		name, want string
		hang       func(c *loop.Conn, hold <-chan struct{}) error
	}{
		{"on a job", "", func(c *loop.Conn, hold <-chan struct{}) error {
			return loop.Offload(c, func(context.Context) int { <-hold; return 0 }, func(*loop.Conn, int) {})
		}},
		{"on a callback", "a callback does not return", func(_ *loop.Conn, hold <-chan struct{}) error {
			<-hold
			return nil
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			hold, cfg := make(chan struct{}), handover.Config{Path: filepath.Join(t.TempDir(), "s"), Timeout: 500 * time.Millisecond}
			defer close(hold)
			a := lines("a")
			a.Drain.Timeout = 100 * time.Millisecond
			a.Accept = func(*loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
					_ = c.Send([]byte("hangs"))
					c.Loop().Post(func() { _ = row.hang(c, hold) })
					return nil
				})
			}
			n, err := open(t, a, cfg)
			if err != nil {
				t.Fatal(err)
			}
			c := dial(t, a)
			c.say("one\n")
			c.hears("hangs")
			if _, err := open(t, lines("b"), cfg); err != nil {
				t.Fatal(err)
			}
			err = testkit.Receive(t, "the end of Run", n.ended)
			if row.want == "" {
				var cut *loop.DrainError
				if err != nil && !errors.As(err, &cut) {
					t.Errorf("Run returns %v, want nil or a DrainError", err)
				}
			} else if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Run returns %v, want %q", err, row.want)
			}
		})
	}
}
