package realtest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	slowOutbound = 1 << 20
	slowPeers    = 10

	// socketBuffers is what the system may keep of a connection's output, on both sides, as a rule.
	socketBuffers = 4 << 20
)

// gibChild sends 1 GiB to who asks for it, and echoes for the others. "flood": a piece each period,
// until Send fails. "paced": as long as the output is below the high-water mark, and WriteStalled
// ends it. "slow" says how many were closed with ErrSlowConsumer, "stalled" how many by the hook,
// "sent" how much was sent.
func gibChild() {
	var mu sync.Mutex
	numbers := make(map[string]int)
	add := func(name string, n int) {
		mu.Lock()
		defer mu.Unlock()
		numbers[name] += n
	}
	srv := &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Limits: loop.Limits{MaxOutbound: slowOutbound}, Timeouts: loop.Timeouts{Close: 2 * time.Second}}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		g := &gib{}
		return script{
			Message: func(c *loop.Conn, msg []byte) error {
				switch string(msg) {
				case "flood":
					g.flood(c)
				case "paced":
					g.paced(c)
				default:
					return c.Send(msg)
				}
				return nil
			},
			Close: func(c *loop.Conn, err error) {
				add("sent", g.sent)
				switch {
				case errors.Is(err, loop.ErrSlowConsumer):
					add("slow", 1)
				case errors.Is(err, errStalled):
					add("stalled", 1)
				}
			},
		}
	}
	servePuppet(srv, func(words []string) string {
		mu.Lock()
		defer mu.Unlock()
		return strconv.Itoa(numbers[words[0]])
	})
}

var errStalled = errors.New("the peer takes nothing")

// gib sends 1 GiB.
type gib struct {
	sent int
	high bool
}

const (
	gibSize   = 1 << 30
	gibPiece  = 64 << 10
	gibPeriod = 10 * time.Millisecond
)

var piece = bytes.Repeat([]byte("y"), gibPiece)

// flood sends without a thought.
func (g *gib) flood(c *loop.Conn) {
	c.Every(gibPeriod, func() {
		if g.sent < gibSize && c.Send(piece) == nil {
			g.sent += gibPiece
		}
	})
}

// paced sends as the connection can take it.
func (g *gib) paced(c *loop.Conn) {
	c.OnHighWater(slowOutbound/2, func() { g.high = true })
	c.OnFlushed(func() { g.high = false })
	c.OnIdle(loop.WriteStalled, time.Second, func(int) { c.CloseWithError(errStalled) })
	c.Every(gibPeriod, func() {
		if !g.high && g.sent < gibSize && c.Send(piece) == nil {
			g.sent += gibPiece
		}
	})
}

// Ten clients that never read are each sent 1 GiB. They are closed, the server's memory has a
// bound, and a hundred others do not notice.
func TestFaultSlowConsumers(t *testing.T) {
	needSlow(t, "it fills the system's socket buffers")
	needLinux(t)
	for _, mode := range []string{"flood", "paced"} {
		t.Run(mode, func(t *testing.T) {
			inTime(t, maxPause, func() time.Duration { return slowConsumers(t, mode) })
		})
	}
}

func slowConsumers(t *testing.T, mode string) time.Duration {
	server := startPuppet(t, "gib")
	network, addr := server.address()
	others := echoers(t, network, addr, 100, 10*time.Millisecond)
	calm := others.calm()
	server.ask("gc")
	server.forgetPeak()
	before := server.memory("VmHWM")
	others.ask("reset")
	var peers []net.Conn
	for range slowPeers {
		c, err := connect(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(mode + "\n")); err != nil {
			t.Fatal(err)
		}
		peers = append(peers, c)
	}
	began := time.Now()
	reason := map[string]string{"flood": "slow", "paced": "stalled"}[mode]
	// The hook fires after 1 s without progress; then what is pending has 2 s to be flushed, the
	// close timeout.
	testkit.Eventually(t, "all ten are closed with "+reason, func() bool {
		return server.number(reason) == slowPeers && server.number("conns") == 100
	})
	took := time.Since(began)
	grown := server.memory("VmHWM") - before
	during := others.report()
	t.Logf("closed after %v and %d MiB; memory grew by %.1f MiB at most; the longest turn took %d us; echo before: %v; meanwhile: %v",
		took.Round(time.Millisecond), server.number("sent")>>20, float64(grown)/(1<<20), server.number("turn"), calm, during)
	if limit := slowPeers * (slowOutbound + socketBuffers); grown > limit {
		t.Errorf("memory grew by %d MiB, more than %d", grown>>20, limit>>20)
	}
	for _, c := range peers { // what the system still held is all they get
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if n, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) || n > 64<<20 {
			t.Errorf("a client that was closed got %d bytes, then %v", n, err)
		}
	}
	others.ends()
	server.ends()
	return during.p99 - calm.p99
}
