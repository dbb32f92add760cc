package realtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// Before any connection, Post and AfterFunc run on as many goroutines as there are loops, on every
// kind of address.
func TestLoopsBeforeConnections(t *testing.T) {
	for _, addr := range []string{
		"tcp://127.0.0.1:0", "tcp4://127.0.0.1:0", "tcp6://[::1]:0", "tcp://:0",
		"unix://" + testkit.SocketPath(t),
	} {
		t.Run(addr[:6], func(t *testing.T) {
			if strings.HasPrefix(addr, "tcp6") {
				needIPv6(t)
			}
			const n = 5
			srv := &loop.Server{Addr: addr, NumLoops: n, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
			start(t, srv)
			posted, timed := make(chan int, n), make(chan int, n)
			for _, l := range srv.Loops() {
				if err := l.Post(func() {
					posted <- goroutineID()
					l.AfterFunc(time.Millisecond, func() { timed <- goroutineID() })
				}); err != nil {
					t.Fatal(err)
				}
			}
			byPost, byTimer := make(map[int]bool), make(map[int]bool)
			for range n {
				byPost[<-posted] = true
				byTimer[<-timed] = true
			}
			if len(byPost) != n || len(byTimer) != n {
				t.Errorf("posts ran on %d goroutines and timers on %d, want %d", len(byPost), len(byTimer), n)
			}
			c := dial(t, srv.LocalAddr())
			mustEcho(t, c, "x")
		})
	}
}

// needIPv6 skips a test where there is none, as in many containers.
func needIPv6(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6 here: ", err)
	}
	_ = ln.Close()
}

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
	t.Run("short", func(t *testing.T) { idleRound(t, 200, 500*time.Millisecond) })
	t.Run("full", func(t *testing.T) {
		needSlow(t, "2,000 connections for several seconds")
		const tries = 5 // lateness is the machine's, too; being early is never forgiven
		for try := 1; ; try++ {
			late, own := idleRound(t, 2000, 2*time.Second)
			p50, allP99, allWorst := percentiles(late)
			_, p99, worst := percentiles(own)
			t.Logf("evicted after the timeout by: median %v, p99 %v, worst %v; without waiting for a processor: p99 %v, worst %v",
				p50, allP99, allWorst, p99, worst)
			if raceEnabled || p99 <= 100*time.Millisecond && worst <= 250*time.Millisecond {
				return // with the race detector only who is evicted, and whether anybody is early, counts
			}
			if try == tries {
				t.Fatalf("p99 %v, worst %v; want at most 100 ms and 250 ms", p99, worst)
			}
		}
	})
}

// idleRound returns by how much the silent connections outlived their timeout, and by how much
// without what this process waited for a processor, or stood still.
func idleRound(t *testing.T, conns int, timeout time.Duration) (late, own []time.Duration) {
	testkit.NeedFiles(t, 2*conns+100)
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
	var wg sync.WaitGroup
	var mu sync.Mutex
	stop := make(chan struct{})
	machine := watchWaits()
	defer machine.end()
	outlive := func(c net.Conn, opened time.Time) {
		due, closed := outlives(t, c, opened, timeout)
		d := closed.Sub(due)
		without := d - machine.within(due, closed)
		mu.Lock()
		defer mu.Unlock()
		if late, own = append(late, d), append(own, without); len(late) == conns/2 {
			close(stop)
		}
	}
	for i := range conns {
		opened := time.Now()
		c := dial(t, addr)
		if i%2 == 1 {
			wg.Go(func() { speak(t, c, timeout/2, timeout, stop) })
			continue
		}
		wg.Go(func() { outlive(c, opened) })
	}
	wg.Wait()
	if n := on.other.Load(); n != 0 {
		t.Errorf("user code ran %d times on a goroutine that is not a loop's", n)
	}
	return late, own
}

// outlives says something, and returns when the connection was to be closed after that, and when it
// was. That may be at once, if the machine stood still for the timeout since it was opened.
func outlives(t *testing.T, c net.Conn, opened time.Time, timeout time.Duration) (due, closed time.Time) {
	before := time.Now()
	c.Write([]byte("last"))
	after := time.Now()
	c.Read(make([]byte, 1))
	closed = time.Now()
	if d := closed.Sub(before); d < timeout && after.Sub(opened) < timeout {
		t.Errorf("evicted %v after its last byte, before the timeout of %v", d, timeout)
	}
	return after.Add(timeout), closed
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

// Each third message panics: the other ones are answered, and the process lives.
func TestPanicsHarmNobodyElse(t *testing.T) {
	const clients, messages = 100, 30
	var panics atomic.Int64
	srv := &loop.Server{
		Codec: codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if strings.HasSuffix(string(msg), "3") {
					panics.Add(1)
					panic("the third")
				}
				return c.Send(msg)
			})
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	srv.Addr = "tcp://127.0.0.1:0"
	secureIfAsked(srv)
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	addr := srv.LocalAddr()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for range messages / 3 {
				c, err := connect(addr.Network(), addr.String())
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
				want := fmt.Sprintf("%d-1\n%d-2\n", i, i)
				fmt.Fprintf(c, "%s%d-3\n", want, i)
				got, err := io.ReadAll(c)
				if string(got) != want || err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	cancel()
	if err := srv.Wait(); err != nil {
		t.Error(err)
	}
	if n, st := panics.Load(), srv.Stats(); n != clients*messages/3 || st.Panics != uint64(n) {
		t.Errorf("%d panics, counted %d; want %d", n, st.Panics, clients*messages/3)
	}
}
