package realtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// onLoops counts calls of user code that ran on another goroutine than a loop's.
type onLoops struct {
	mu    sync.Mutex
	loops map[int]bool
	other atomic.Int64
}

func (o *onLoops) start(*loop.Loop) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.loops == nil {
		o.loops = make(map[int]bool)
	}
	o.loops[goroutineID()] = true
}

func (o *onLoops) check() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.loops[goroutineID()] {
		o.other.Add(1)
	}
}

type checkedHandler struct{ on *onLoops }

func (h checkedHandler) OnMessage(*loop.Conn, []byte) error { h.on.check(); return nil }
func (h checkedHandler) OnClose(*loop.Conn, error)          { h.on.check() }

// Real connections: the silent half is evicted at its time, the half that speaks stays, and all
// user code runs on the loops.
func TestIdleTimeoutOnRealConnections(t *testing.T) {
	const conns, timeout = 200, 500 * time.Millisecond
	on := &onLoops{}
	srv := &loop.Server{
		NumLoops:    2,
		IdleTimeout: timeout,
		OnStart:     on.start,
		Accept: func(c *loop.Conn) loop.Handler {
			on.check()
			c.AfterFunc(time.Millisecond, on.check)
			return checkedHandler{on}
		},
	}
	addr := start(t, srv)
	var silent, speaking sync.WaitGroup
	stop := make(chan struct{})
	for i := range conns {
		opened := time.Now()
		c := dial(t, addr)
		if i%2 == 1 {
			speaking.Go(func() { speak(t, c, timeout/2, timeout, stop) })
			continue
		}
		silent.Go(func() { outlives(t, c, opened, timeout) })
	}
	silent.Wait() // each has been closed, or its deadline says that it was not
	close(stop)
	speaking.Wait()
	testkit.Want(t, "calls of user code on a goroutine that is not a loop's", on.other.Load(), 0)
}

// outlives says something, and waits until the connection is closed. That may be at once, if the
// machine stood still for the timeout since it was opened.
func outlives(t *testing.T, c net.Conn, opened time.Time, timeout time.Duration) {
	before := time.Now()
	c.Write([]byte("last"))
	after := time.Now()
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent connection is not closed: %v", err)
	}
	if d := time.Since(before); d < timeout && after.Sub(opened) < timeout {
		t.Errorf("evicted %v after its last byte, before the timeout of %v", d, timeout)
	}
}

// speak sends a byte each period until stop, and fails if the server closes before it was silent
// for the timeout. A machine that stands still makes it silent, too.
func speak(t *testing.T, c net.Conn, period, timeout time.Duration, stop chan struct{}) {
	last, silence := time.Now(), time.Duration(0) // before the last byte; the longest until the next
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Read(make([]byte, 1))
	}()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			before := time.Now()
			c.Write([]byte("x"))
			silence, last = max(silence, time.Since(last)), before
		case <-closed:
			if silence = max(silence, time.Since(last)); silence < timeout {
				t.Errorf("a connection that was silent for no longer than %v was evicted", silence)
			}
			return
		case <-stop:
			c.Close()
			<-closed
			return
		}
	}
}

// A loop that was blocked for twice the idle timeout evicts nobody whose bytes came in meanwhile.
func TestBlockedLoopEvictsNobody(t *testing.T) {
	const timeout = 300 * time.Millisecond
	srv := &loop.Server{
		NumLoops:    1,
		IdleTimeout: timeout,
		Accept:      func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	}
	addr := start(t, srv)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 50 {
		c, since := echoesIn(t, timeout, func() net.Conn { return dial(t, addr) })
		wg.Go(func() { keepsEchoing(t, c, since, timeout, stop) })
	}
	blocked := make(chan struct{})
	if err := srv.Loops()[0].Post(func() { <-blocked }); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*timeout, func() { close(blocked) })
	time.AfterFunc(4*timeout, func() { close(stop) })
	wg.Wait()
}

// echoesIn returns a connection that has echoed, and when it was about to speak. One that was
// evicted before, as the machine stood still, is replaced.
func echoesIn(t *testing.T, timeout time.Duration, dial func() net.Conn) (net.Conn, time.Time) {
	t.Helper()
	for {
		since := time.Now()
		c := dial()
		_, _ = c.Write([]byte("hello"))
		_, err := io.ReadFull(c, make([]byte, len("hello")))
		if err == nil {
			return c, since
		}
		if silent := time.Since(since); silent < timeout {
			t.Fatalf("no echo after %v: %v", silent, err)
		}
	}
}

// keepsEchoing sends a byte four times in a timeout until stop, and then reads as many back. It may
// be evicted only if it was silent for a timeout itself since it spoke last, as when the machine
// stood still.
func keepsEchoing(t *testing.T, c net.Conn, since time.Time, timeout time.Duration, stop chan struct{}) {
	sent, silence := 0, time.Duration(0)
	tick := time.NewTicker(timeout / 4)
	defer tick.Stop()
	for speaking := true; speaking; {
		select {
		case <-tick.C:
			before := time.Now()
			_, err := c.Write([]byte("x"))
			if silence = max(silence, time.Since(since)); err != nil {
				speaking = false
			}
			sent, since = sent+1, before
		case <-stop:
			silence, speaking = max(silence, time.Since(since)), false
		}
	}
	if n, err := io.ReadFull(c, make([]byte, sent)); err != nil && silence < timeout {
		t.Errorf("of %d bytes %d came back, though none was longer than %v after the one before: %v", sent, n, silence, err)
	}
}

// The same when the whole process was stopped.
func TestStoppedProcessEvictsNobody(t *testing.T) {
	const timeout = 300 * time.Millisecond
	server := startChild(t, "echo", "IDLE="+timeout.String())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 50 {
		c, since := echoesIn(t, timeout, func() net.Conn {
			c, err := net.Dial("tcp", server.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
			return c
		})
		wg.Go(func() { keepsEchoing(t, c, since, timeout, stop) })
	}
	signal := func(s os.Signal) {
		if err := server.cmd.Process.Signal(s); err != nil {
			t.Error(err)
		}
	}
	signal(stopProcess)
	time.AfterFunc(2*timeout, func() { signal(continueProcess) })
	time.AfterFunc(4*timeout, func() { close(stop) })
	wg.Wait()
}

// echoChild is an echo server with the idle timeout that $IDLE says.
func echoChild() {
	idle, _ := time.ParseDuration(os.Getenv("IDLE"))
	serveChild(&loop.Server{
		Addr:        "tcp://127.0.0.1:0",
		IdleTimeout: idle,
		Accept:      func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	})
}

func serveChild(srv *loop.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(srv.LocalAddr())
	untilInputEnds()
	cancel()
	if err := srv.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
