package realtest_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A busyness keeps the only loop of a server busy, while another client asks for echoes.
type busyness struct {
	name    string
	clients int
	line    string // that each client sends
	floods  bool   // again and again
	begin   func(c *loop.Conn)
	tls     bool

	echoes       int // that another client gets in 3 s, at least
	slowest      time.Duration
	netEchoes    int // the same for the engine on Go's net
	netSlowest   time.Duration
	showsWaiting time.Duration // what the metric says at least
}

// work takes so long, as code that computes does.
func work(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

// feeds is the producer of docs/backpressure.md: it makes more whenever all has been taken.
func feeds(size int, cost time.Duration) func(c *loop.Conn) {
	chunk := make([]byte, size)
	return func(c *loop.Conn) {
		fill := func() {
			for c.Pending() < 64<<10 {
				if work(cost); c.Send(chunk) != nil {
					return
				}
			}
		}
		c.OnFlushed(fill)
		fill()
	}
}

func busynesses() (all []busyness) {
	const slow = 5 * time.Millisecond
	for _, secure := range []bool{false, true} {
		for _, cost := range []time.Duration{0, 5, 10, 20, 50} {
			all = append(all, busyness{name: fmt.Sprintf("producer-%dus-tls-%v", cost, secure), clients: 1, line: "begin\n",
				begin: feeds(16<<10, cost*time.Microsecond), tls: secure,
				echoes: 300, slowest: 40 * time.Millisecond, netEchoes: 200, netSlowest: 150 * time.Millisecond})
		}
	}
	many := busyness{line: "begin\n", echoes: 100, slowest: 100 * time.Millisecond, netEchoes: 100, netSlowest: 150 * time.Millisecond}
	for clients, cost := range map[int]time.Duration{16: 3 * time.Millisecond, 32: time.Millisecond} {
		b := many
		b.name, b.clients, b.begin = fmt.Sprintf("producers-%d", clients), clients, feeds(512<<10, cost)
		all = append(all, b)
	}
	callbacks := busyness{clients: 1, line: "begin\n", echoes: 50, slowest: 60 * time.Millisecond, netEchoes: 50, netSlowest: 150 * time.Millisecond}
	again := func(name string, begin func(c *loop.Conn)) {
		b := callbacks
		b.name, b.begin = name, begin
		all = append(all, b)
	}
	again("posts", func(c *loop.Conn) {
		var f func()
		f = func() { work(slow); _ = c.Loop().Post(f) }
		for range 100 {
			_ = c.Loop().Post(f)
		}
	})
	again("timers", func(c *loop.Conn) {
		for range 100 {
			c.Every(10*time.Millisecond, func() { work(slow) })
		}
	})
	again("results", func(c *loop.Conn) {
		var next func(c *loop.Conn, _ int)
		next = func(c *loop.Conn, _ int) {
			work(slow)
			_ = loop.Offload(c, func(context.Context) int { return 0 }, next)
		}
		for range 100 {
			_ = loop.Offload(c, func(context.Context) int { return 0 }, next)
		}
	})
	again("flushed", func(c *loop.Conn) {
		more := func() { work(slow); _ = c.Send([]byte("x")); _ = c.Pending() }
		c.OnFlushed(more)
		more()
	})
	for _, clients := range []int{1, 16} {
		b := callbacks
		b.name, b.clients, b.line, b.floods = fmt.Sprintf("messages-%d", clients), clients, "message\n", true
		b.begin = func(*loop.Conn) { work(slow) }
		if clients > 1 {
			// In one batch of events each has its slice.
			b.slowest, b.netSlowest, b.showsWaiting = 150*time.Millisecond, 250*time.Millisecond, 2*slow
		}
		all = append(all, b)
	}
	return all
}

// Whatever keeps a loop busy, another client gets its echoes, the metric shows how long sockets
// wait, and the server ends in time.
func TestFair(t *testing.T) {
	needSlow(t, "a minute, and a machine that does nothing else")
	for _, b := range busynesses() {
		t.Run(b.name, b.run)
	}
}

func (b busyness) run(t *testing.T) {
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: codec.Lines{}, Limits: loop.Limits{MaxOutbound: 8 << 20}, Drain: loop.Drain{Timeout: 2 * time.Second},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				if string(msg) == "ping" {
					return c.Send(msg)
				}
				b.begin(c)
				return nil
			})
		},
	}
	if b.tls {
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("localhost")}}
	}
	if err := srv.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range b.clients {
		c := b.dial(t, srv)
		go func() { _, _ = io.Copy(io.Discard, c) }()
		if b.floods {
			go floodWith(c, []byte(b.line))
		} else if _, err := io.WriteString(c, b.line); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond) // all have begun
	n, slowest := b.ask(t, b.dial(t, srv))
	wait := srv.Stats().MaxSocketWait
	began := time.Now()
	_ = srv.Shutdown(context.Background()) // an error says that some have not read all
	took := time.Since(began)
	t.Logf("%d echoes in 3 s, the slowest took %v; a socket waited %v; down in %v", n, slowest, wait, took)
	wantEchoes, wantSlowest := b.echoes, b.slowest
	if testhook.DefaultEngine() == "net" {
		wantEchoes, wantSlowest = b.netEchoes, b.netSlowest
	}
	if n < wantEchoes || slowest > wantSlowest {
		t.Errorf("%d echoes in 3 s, want %d; the slowest took %v, want %v", n, wantEchoes, slowest, wantSlowest)
	}
	if wait < b.showsWaiting {
		t.Errorf("the metric says that sockets wait %v, want %v", wait, b.showsWaiting)
	}
	if took > srv.Drain.Timeout+time.Second {
		t.Errorf("the server took %v to end", took)
	}
}

func (b busyness) dial(t *testing.T, srv *loop.Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if b.tls {
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	return c
}

// ask asks for an echo each 2 ms, one after the other, for 3 s.
func (b busyness) ask(t *testing.T, c net.Conn) (n int, slowest time.Duration) {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	answer := make([]byte, len("ping\n"))
	tick := time.Tick(2 * time.Millisecond)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); n++ {
		asked := time.Now()
		if _, err := io.WriteString(c, "ping\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, answer); err != nil || !strings.HasPrefix(string(answer), "ping") {
			t.Fatalf("%q, %v", answer, err)
		}
		slowest = max(slowest, time.Since(asked))
		<-tick
	}
	return n, slowest
}
