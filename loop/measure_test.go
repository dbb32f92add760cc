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
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// dawdler blocks its loop for as long as its messages say.
type dawdler struct{ script }

func (dawdler) OnMessage(_ *loop.Conn, msg []byte) error {
	d, err := time.ParseDuration(string(msg))
	testkit.Block(d)
	return err
}

// total returns how many durations a series has.
func total(s *meter.Series) (n uint64) {
	for _, count := range s.Counts {
		n += count
	}
	return n
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
		measured := srv.Loops()[0].Measured()
		if got, want := measured.Late.Max, 20*time.Millisecond; got != want {
			t.Errorf("the latest timer: got %v, want %v", got, want)
		}
		if got, want := measured.Turns.Max, 70*time.Millisecond; got != want {
			t.Errorf("the longest turn: got %v, want %v", got, want)
		}
		if n := total(&measured.Waited); n == 0 {
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
