//go:build unix

package handover_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// This file stops a successor at the worst moment.

// next begins a handover, in which the test carries out the successor's steps.
func next(t *testing.T, path string) *handover.Successor {
	t.Helper()
	srv := lines("b")
	srv.Logger = zerolog.Nop()
	h, err := handover.Open(t.Context(), srv, handover.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return handover.Begin(t, h)
}

// A worker answers a line with a job, which returns when the test says so.
type worker struct {
	*counter
	finish <-chan struct{}
}

func (h *worker) OnMessage(c *loop.Conn, line []byte) error {
	if string(line) != "job" {
		return h.counter.OnMessage(c, line)
	}
	_ = c.Send([]byte("works"))
	return loop.Offload(c, func(context.Context) int { <-h.finish; return 0 }, func(c *loop.Conn, _ int) { _ = c.Send([]byte("done")) })
}

// working is a server in charge with workers. Its Drain.Delay does not end within the test.
func working(t *testing.T, cfg handover.Config) (srv *loop.Server, finish chan struct{}) {
	t.Helper()
	srv, finish = lines("a"), make(chan struct{})
	srv.Drain.Delay = patience
	srv.Accept = func(c *loop.Conn) loop.Handler { return &worker{accept("a")(c).(*counter), finish} }
	if _, err := open(t, srv, cfg); err != nil {
		t.Fatal(err)
	}
	return srv, finish
}

// hasJob dials, and waits until a job of the connection runs.
func hasJob(t *testing.T, srv *loop.Server) *client {
	t.Helper()
	c := dial(t, srv)
	c.say("one\njob\n")
	c.hears("a 1 one")
	c.hears("works")
	return c
}

// A successor that stops with a batch holds nothing else up: what it has not taken is read on, and
// moves to other loops.
func TestSuccessorStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a, finish := working(t, handover.Config{Path: path, Patience: 100 * time.Millisecond, Timeout: 200 * time.Millisecond})
	c := hasJob(t, a)
	b := next(t, path)
	b.Got(b.Until(handover.Batch)) // the right to accept
	info := inside.Take[inside.ForMetrics[*loop.Conn, *loop.Loop]]().Info
	testkit.Eventually(t, "the input of the connection with a job is held", func() bool {
		paused := make(chan bool, 1)
		for ref := range a.Conns() {
			_ = ref.Tell(func(c *loop.Conn) { paused <- info(c).Paused })
		}
		return <-paused
	})
	close(finish)
	c.hears("done")
	batch := b.Until(handover.Batch)
	c.say("two\n")
	c.hears("a 2 two") // after Timeout
	moves(t, a)
	b.Got(batch)
	b.Got(b.Until(handover.Over))
	if stayed := b.Stayed(); len(stayed) > 0 {
		t.Errorf("%v stay, want none", stayed)
	}
	b.Retired() // its sweep has met all newcomers of the time when this one had stopped
}

// A heavy counter has a large state: two fill the line.
type heavy struct{ *counter }

func (h heavy) Save(c *loop.Conn) ([]byte, error) {
	state, err := h.counter.Save(c)
	return append(state, bytes.Repeat([]byte(" "), 250<<10)...), err
}

// Of a successor that stops with half of a batch in the line the old process reads the connections
// on. They move when it reads again.
func TestSuccessorStopsInABatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.NumLoops = 1
	a.Accept = func(c *loop.Conn) loop.Handler { return heavy{accept("a")(c).(*counter)} }
	if _, err := open(t, a, handover.Config{Path: path, Timeout: 2 * time.Second}); err != nil {
		t.Fatal(err)
	}
	clients := make([]*client, 3)
	for i := range clients {
		clients[i] = dial(t, a)
		clients[i].say("one\n")
		clients[i].hears("a 1 one")
	}
	b := next(t, path)
	for range 2 { // the right to accept, and one of the kind
		b.Got(b.Until(handover.Batch))
	}
	byOld := 0
	for _, c := range clients {
		c.say("two\n")
		if said, err := c.in.ReadString('\n'); said == "a 2 two\n" {
			byOld++
		} else if said != "b 2 two\n" {
			t.Errorf("a client hears %q, %v; want an answer to its second line", said, err)
		}
	}
	if byOld != 2 {
		t.Errorf("the old process answers %d, want the two of the batch", byOld)
	}
	b.Got(b.Until(handover.Over))
	if stayed := b.Stayed(); len(stayed) > 0 {
		t.Errorf("%v stay, want none", stayed)
	}
	for _, c := range clients {
		c.say("three\n")
		c.hears("b 3 three")
	}
}

// moves fails the test unless a connection of the server changes its loop.
func moves(t *testing.T, srv *loop.Server) {
	t.Helper()
	arrived := make(chan struct{})
	for _, ref := range slices.Collect(srv.Conns()) { // before it moves to a loop that is yet to be listed
		_ = ref.Tell(func(c *loop.Conn) {
			if err := c.MoveTo(srv.Loops()[1-c.Loop().Index()], func(*loop.Conn) { close(arrived) }); err != nil {
				t.Error(err)
			}
		})
	}
	testkit.Receive(t, "its arrival at another loop", arrived)
}

// A newcomer of the time when the successor had stopped moves when it goes on, and what it has in
// hand has its time for that.
func TestNewcomerIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a, finish := working(t, handover.Config{Path: path, Patience: 200 * time.Millisecond, Timeout: 400 * time.Millisecond})
	b := next(t, path)
	over := b.Until(handover.Over)
	b.Stop()
	c := hasJob(t, a) // after Timeout
	b.Got(over)
	time.AfterFunc(50*time.Millisecond, func() { close(finish) })
	b.Got(b.Until(handover.Over))
	if stayed := b.Stayed(); len(stayed) > 0 {
		t.Errorf("%v stay, want none", stayed)
	}
	c.Close()
}

// What stays can change its loop.
func TestWhatStaysMovesToLoops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.Drain.Delay = patience
	a.Accept = func(c *loop.Conn) loop.Handler { return &counter{Who: "a", refuse: true} }
	start(t, path, a)
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
	if r := start(t, path, lines("b")); r.Moved != 0 {
		t.Fatalf("%+v, want none moved", r)
	}
	testkit.Eventually(t, "the old process ends", a.Draining)
	moves(t, a)
	c.say("two\n")
	c.hears("a 2 two")
}

// A net.Conn stays, and is counted.
func TestNetConnStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := lines("a")
	a.Listeners = []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: &websocket.Codec{HTTP: http.NotFoundHandler()}}}
	a.Drain.Delay = patience
	start(t, path, a)
	kept := &http.Client{Transport: &http.Transport{}}
	defer kept.CloseIdleConnections()
	for range 2 { // by one connection
		res, err := kept.Get("http://" + a.Addrs()[1].String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	r := start(t, path, lines("b"))
	if want := map[string]int{"net.Conn": 1}; !reflect.DeepEqual(r.Stayed, want) {
		t.Errorf("%v stay, want %v", r.Stayed, want)
	}
}

// What could have moved at the end, but was busy when the others moved, is counted.
func TestTooLateIsCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a, finish := working(t, handover.Config{Path: path, Patience: time.Millisecond, State: &notebook{}})
	c := hasJob(t, a)
	srv := lines("b")
	srv.Logger = zerolog.Nop()
	h, err := handover.Open(t.Context(), srv, handover.Config{Path: path, State: &notebook{}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	b := handover.Begin(t, h)
	batch := b.Until(handover.Batch)
	close(finish)
	c.hears("done")
	b.Got(batch)
	b.Got(b.Until(handover.Over))
	if want := map[string]int{"too late": 1}; !reflect.DeepEqual(b.Stayed(), want) {
		t.Errorf("%v stay, want %v", b.Stayed(), want)
	}
}

// A Pipe of which one end is too large for the line stays whole.
func TestLargePipeStays(t *testing.T) {
	path, b, ends := filepath.Join(t.TempDir(), "s"), newBackend(t, nil), make(chan string, 10)
	a := relays(b.addr(), ends)
	a.Drain.Delay = patience
	a.Accept = func(c *loop.Conn) loop.Handler {
		c.PauseRead()
		loop.Dialer{MoveAs: "x"}.Dial(c.Loop(), b.addr(), func(to *loop.Conn, err error) loop.Handler {
			if err != nil {
				return nil
			}
			loop.Pipe(c, to, loop.PipeConfig{})
			c.ResumeRead()
			return &relay{strings.Repeat("x", 17<<20)}
		})
		return &relay{"x"}
	}
	start(t, path, a)
	near := dial(t, a)
	far := b.accept()
	near.say("one\n")
	far.hears("one")
	other := dial(t, a)
	b.accept()
	if r := start(t, path, relays(b.addr(), ends)); r.Moved != 0 || r.Stayed["refused"] != 4 {
		t.Errorf("%+v, want 4 that stay", r)
	}
	far.say("two\n")
	near.hears("two")
	b.isQuiet()
	other.Close()
}

// After an error of Open nobody can connect to the meeting socket by this process.
func TestOpenFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ended := make(chan error, 1)
	go func() { ended <- handover.Refuse(ln) }() // after the meeting socket
	if h, err := handover.Open(t.Context(), lines("b"), handover.Config{Path: path}); err == nil {
		_ = h.Close()
		t.Fatal("Open succeeds, want a refusal")
	}
	if err := testkit.Receive(t, "the end of the process in charge", ended); err != nil {
		t.Fatal(err)
	}
	if nc, err := net.Dial("unix", path); err == nil {
		nc.Close()
		t.Error("the meeting socket is open, want a refused connect")
	}
}

// Run after a Ready that has failed returns its error.
func TestRunAfterReady(t *testing.T) {
	srv := lines("a")
	srv.Logger = zerolog.Nop()
	broken := errors.New("no database")
	srv.OnStart = func(*loop.Loop) { panic(broken) }
	h, err := handover.Open(t.Context(), srv, handover.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Ready(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Ready returns %v, want %v", err, broken)
	}
	if err := h.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Run returns %v, want %v", err, broken)
	}
}

// A process that was closed while its Server started takes nothing over, and does not accept.
func TestCloseBesideReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a, b := lines("a"), lines("b")
	start(t, path, a)
	var h *handover.Handover
	b.OnStart = func(l *loop.Loop) {
		if l.Index() == 0 {
			_ = h.Close()
		}
	}
	h, err := handover.Open(t.Context(), b, handover.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := h.Ready(t.Context()); err == nil {
		t.Errorf("Ready returns %+v, nil; want an error", r)
	}
	c := dial(t, a)
	c.say("one\n")
	c.hears("a 1 one")
}

// A process that is to end while its successor starts waits Timeout for that, and then drains. A
// successor that is ready in time takes over.
func TestEndWhileSuccessorStarts(t *testing.T) {
	for name, inTime := range map[string]bool{"too late": false, "in time": true} {
		t.Run(name, func(t *testing.T) {
			cfg := handover.Config{Path: filepath.Join(t.TempDir(), "s"), Timeout: 500 * time.Millisecond, StartTimeout: time.Hour}
			if inTime {
				cfg.Timeout = patience
			}
			a, b := lines("a"), lines("b")
			a.Logger, b.Logger = zerolog.Nop(), zerolog.Nop()
			ha, err := handover.Open(t.Context(), a, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer ha.Close()
			if _, err := ha.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := dial(t, a)
			c.say("one\n")
			c.hears("a 1 one")
			hb, err := handover.Open(t.Context(), b, cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer hb.Close()
			ctx, end := context.WithCancel(t.Context())
			end()
			ended := make(chan error, 1)
			go func() { ended <- ha.Run(ctx) }()
			if !inTime {
				testkit.Eventually(t, "the old process drains", a.Draining)
			}
			if r, err := hb.Ready(t.Context()); (err == nil) != inTime {
				t.Errorf("Ready returns %+v, %v; want success %v", r, err, inTime)
			}
			if inTime {
				c.say("two\n")
				c.hears("b 2 two")
			}
			if err := testkit.Receive(t, "the end of Run", ended); err != nil {
				t.Errorf("Run returns %v, want nil", err)
			}
		})
	}
}

// When the successor dies after it has announced itself, the old process announces itself again. Its
// log has the reason.
func TestSuccessorDiesAfterOver(t *testing.T) {
	dir, log := t.TempDir(), make(lineWriter, 100)
	cfg := handover.Config{Path: filepath.Join(dir, "s"), PIDFile: filepath.Join(dir, "pid"), Timeout: 500 * time.Millisecond}
	a := lines("a")
	a.Logger = zerolog.New(log)
	serves(t, a, cfg)
	b := next(t, cfg.Path)
	b.Until(handover.Over)
	if err := os.WriteFile(cfg.PIDFile, []byte("the next one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Die()
	for line := ""; !strings.Contains(line, "this process continues"); {
		line = testkit.Receive(t, "a line of the log", log)
		if strings.Contains(line, "this process continues") && !strings.Contains(line, `"why":"it has ended, or given up"`) {
			t.Errorf("the log has %s, want why", line)
		}
	}
	testkit.Eventually(t, "the PID file has this process again", func() bool {
		text, _ := os.ReadFile(cfg.PIDFile)
		return string(text) == fmt.Sprintln(os.Getpid())
	})
}

type lineWriter chan string

func (w lineWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}
