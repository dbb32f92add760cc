package realtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// Before any connection, Post and AfterFunc run on as many goroutines as there are loops, on every
// kind of address.
func TestLoopsBeforeConnections(t *testing.T) {
	for _, addr := range []string{
		"tcp://127.0.0.1:0", "tcp4://127.0.0.1:0", "tcp6://[::1]:0", "tcp://:0",
		"unix://" + filepath.Join(t.TempDir(), "x.sock"),
	} {
		t.Run(addr[:6], func(t *testing.T) {
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
		const tries = 3 // lateness is the machine's, too; being early is never forgiven
		for try := 1; ; try++ {
			late := idleRound(t, 2000, 2*time.Second)
			slices.Sort(late)
			p99, worst := late[len(late)*99/100], late[len(late)-1]
			t.Logf("evicted after the timeout by: median %v, p99 %v, worst %v", late[len(late)/2], p99, worst)
			if p99 <= 100*time.Millisecond && worst <= 250*time.Millisecond {
				return
			}
			if try == tries {
				t.Fatalf("p99 %v, worst %v; want at most 100 ms and 250 ms", p99, worst)
			}
		}
	})
}

// idleRound returns by how much the silent connections outlived their timeout.
func idleRound(t *testing.T, conns int, timeout time.Duration) (late []time.Duration) {
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
	for i := range conns {
		c := dial(t, addr)
		if i%2 == 1 {
			wg.Go(func() { speak(t, c, timeout/2, stop) })
			continue
		}
		wg.Go(func() {
			before := time.Now()
			c.Write([]byte("last"))
			after := time.Now()
			c.Read(make([]byte, 1))
			closed := time.Now()
			if d := closed.Sub(before); d < timeout {
				t.Errorf("evicted %v after its last byte, before the timeout of %v", d, timeout)
			}
			mu.Lock()
			defer mu.Unlock()
			if late = append(late, closed.Sub(after)-timeout); len(late) == conns/2 {
				close(stop)
			}
		})
	}
	wg.Wait()
	if n := on.other.Load(); n != 0 {
		t.Errorf("user code ran %d times on a goroutine that is not a loop's", n)
	}
	return late
}

// speak sends a byte each period until stop, and fails if the server closes.
func speak(t *testing.T, c net.Conn, period time.Duration, stop chan struct{}) {
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
			c.Write([]byte("x"))
		case <-closed:
			t.Error("a connection that spoke was evicted")
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
		c := dial(t, addr)
		mustEcho(t, c, "hello")
		wg.Go(func() { keepsEchoing(t, c, timeout/4, stop) })
	}
	blocked := make(chan struct{})
	if err := srv.Loops()[0].Post(func() { <-blocked }); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*timeout, func() { close(blocked) })
	time.AfterFunc(4*timeout, func() { close(stop) })
	wg.Wait()
	if st := srv.Stats(); st.Evicted != 0 {
		t.Errorf("%d connections were evicted", st.Evicted)
	}
}

// keepsEchoing sends a byte each period until stop and then reads as many back.
func keepsEchoing(t *testing.T, c net.Conn, period time.Duration, stop chan struct{}) {
	sent := 0
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if _, err := c.Write([]byte("x")); err != nil {
				t.Errorf("after %d bytes: %v", sent, err)
				return
			}
			sent++
			continue
		case <-stop:
		}
		break
	}
	if _, err := io.ReadFull(c, make([]byte, sent)); err != nil {
		t.Errorf("of %d bytes not all came back: %v", sent, err)
	}
}

// The same when the whole process was stopped.
func TestStoppedProcessEvictsNobody(t *testing.T) {
	const timeout = 300 * time.Millisecond
	server := startChild(t, "echo", "IDLE="+timeout.String())
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 50 {
		c, err := net.Dial("tcp", server.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		mustEcho(t, c, "hello")
		wg.Go(func() { keepsEchoing(t, c, timeout/4, stop) })
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
				_ = c.SetDeadline(time.Now().Add(30 * time.Second))
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
