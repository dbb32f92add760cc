package loop_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

func TestHistogram(t *testing.T) {
	var h loop.Histogram
	if h.Quantile(0.5) != 0 || h.Total() != 0 {
		t.Error("an empty histogram has something in it")
	}
	h.Counts[0], h.Counts[3], h.Counts[len(h.Counts)-1] = 50, 49, 1
	if got := h.Quantile(0.4); got != h.Bounds()[0] {
		t.Errorf("quantile 0.4: %v", got)
	}
	if got := h.Quantile(0.9); got != 512*time.Microsecond {
		t.Errorf("quantile 0.9: %v", got)
	}
	if got := h.Quantile(1); got < 4*time.Second {
		t.Errorf("quantile 1: %v", got)
	}
	h.Sum = time.Second
	h.Add(&h)
	if h.Total() != 200 || h.Sum != 2*time.Second {
		t.Errorf("%d durations, %v in all", h.Total(), h.Sum)
	}
}

// dawdler blocks its loop for as long as its messages say.
type dawdler struct{ script }

func (dawdler) OnMessage(_ *loop.Conn, msg []byte) error {
	d, err := time.ParseDuration(string(msg))
	testkit.Block(d)
	return err
}

// What takes long is in the histograms, and among the slow turns with who did it.
func TestMeasures(t *testing.T) {
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return dawdler{} }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.Open().Send("0\n", "70ms\n")
		p := srv.Open()
		srv.Do(0, func(l *loop.Loop) { l.AfterFunc(10*time.Millisecond, func() {}) })
		p.Send("30ms\n") // the timer is late by 20 ms
		wait(time.Second)
		ls := srv.Stats().Loops[0]
		if got := ls.Late.Quantile(1); got < 20*time.Millisecond || got > 64*time.Millisecond {
			t.Errorf("timers were late by %v", got)
		}
		if got := ls.Turns.Quantile(1); got < 70*time.Millisecond || got > 140*time.Millisecond {
			t.Errorf("the longest turn is %v", got)
		}
		if n := ls.Waited.Total(); n == 0 {
			t.Error("nothing was posted")
		}
		slow := srv.Loops()[0].SlowTurns()
		if len(slow) != 2 || slow[0].Took != 70*time.Millisecond || slow[1].Took != 30*time.Millisecond {
			t.Fatalf("slow turns %+v", slow)
		}
		if s := slow[1]; s.Conn != 2 || !strings.HasSuffix(s.Handler, "dawdler") {
			t.Errorf("by connection %d, %s", s.Conn, s.Handler)
		}
		wait(time.Hour)
		if slow := srv.Loops()[0].SlowTurns(); len(slow) != 0 {
			t.Errorf("an hour later: %+v", slow)
		}
	})
}

// Of many slow turns the longest are kept.
func TestSlowTurnsAreTheLongest(t *testing.T) {
	bubble(t, &loop.Server{Accept: silent}, func(t *testing.T, srv *looptest.Server) {
		for i := range 30 {
			d := time.Duration(i*7%30+2) * time.Millisecond
			srv.Do(0, func(*loop.Loop) { testkit.Block(d) })
		}
		slow := srv.Loops()[0].SlowTurns()
		if len(slow) != 8 {
			t.Fatalf("%d are kept", len(slow))
		}
		for i, s := range slow {
			if want := time.Duration(31-i) * time.Millisecond; s.Took != want || s.Conn != 0 {
				t.Errorf("the %dth took %v, want %v, connection %d", i+1, s.Took, want, s.Conn)
			}
		}
	})
}

func TestConnInfo(t *testing.T) {
	bubble(t, &loop.Server{Codec: codec.Lines{}, Accept: silent}, func(t *testing.T, srv *looptest.Server) {
		began := time.Now()
		p := srv.Open()
		wait(time.Second)
		p.Send("half a li")
		wait(time.Second)
		tell(srv, p, func(c *loop.Conn) {
			c.PauseRead()
			i := c.Info()
			if i.ID != 1 || i.Remote != c.RemoteAddr() || i.Handler != "rig.Script" || i.Buffered != 9 || !i.Paused || i.Closing {
				t.Errorf("%+v", i)
			}
			if i.Opened.Sub(began) != 0 || i.LastRead.Sub(began) != time.Second || i.LastWrite != i.Opened {
				t.Errorf("times %v, %v, %v", i.Opened.Sub(began), i.LastRead.Sub(began), i.LastWrite.Sub(began))
			}
		})
	})
}

// Each end of a connection is counted by its reason, whatever error it came with.
func TestClosedBy(t *testing.T) {
	srv := &loop.Server{Codec: codec.Lines{Max: 10}, IdleTimeout: time.Minute, Timeouts: loop.Timeouts{Frame: time.Second}}
	var last error
	srv.Accept = func(c *loop.Conn) loop.Handler {
		return script{Message: func(c *loop.Conn, msg []byte) error {
			switch string(msg) {
			case "close":
				c.Close()
			case "panic":
				panic("x")
			case "error":
				return errors.New("no")
			case "idle":
				c.CloseWithError(fmt.Errorf("kicked: %w", loop.ErrIdle))
			case "typed nil":
				var e *net.OpError
				c.CloseWithError(e)
			case "net":
				c.CloseWithError(&net.OpError{Op: "dial", Err: errors.New("x")})
			}
			return nil
		}, Close: func(_ *loop.Conn, err error) { last = err }}
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for _, tc := range []struct {
			reason string
			do     func(p *looptest.Peer)
		}{
			{"handler", func(p *looptest.Peer) { p.Send("close\n") }},
			{"peer", func(p *looptest.Peer) { p.Close() }},
			{"idle", func(p *looptest.Peer) { wait(2 * time.Minute) }},
			{"idle", func(p *looptest.Peer) { p.Send("idle\n") }},
			{"slow_frame", func(p *looptest.Peer) { p.Send("half"); wait(2 * time.Second) }},
			{"panic", func(p *looptest.Peer) { p.Send("panic\n") }},
			{"input", func(p *looptest.Peer) { p.Send("error\n") }},
			{"input", func(p *looptest.Peer) { p.Send("longer than ten\n") }},
			{"other", func(p *looptest.Peer) { p.Send("typed nil\n") }},
			{"network", func(p *looptest.Peer) { p.Send("net\n") }},
		} {
			before := srv.Stats()
			tc.do(srv.Open())
			wait(2 * time.Second)
			after := srv.Stats()
			var sum uint64
			for r, n := range after.ClosedBy {
				sum += n
				want := before.ClosedBy[r]
				if r == tc.reason {
					want++
				}
				if n != want {
					t.Errorf("%v: %d closed for %v, want %d; the error was %v", tc.reason, n, r, want, last)
				}
			}
			if sum != after.Closed {
				t.Errorf("%v: %d closed, %d by reason", tc.reason, after.Closed, sum)
			}
		}
	})
}

// A datagram that its handler refuses counts, and is logged, as any other message.
func TestReasonOfARefusedDatagram(t *testing.T) {
	var log bytes.Buffer
	srv := &loop.Server{Addr: "udp://127.0.0.1:0", Logger: zerolog.New(&log)}
	srv.Accept = func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(*loop.Conn, []byte) error { return errOwn })
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.OpenUDP(0).Send("x")
		if n := srv.Stats().ClosedBy["input"]; n != 1 {
			t.Errorf("%d closed for their input, want 1", n)
		}
		if !strings.Contains(log.String(), "a message was refused") {
			t.Errorf("logged %q", log.String())
		}
	})
}
