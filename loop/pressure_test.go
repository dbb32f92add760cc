package loop_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// accepting returns an Accept that calls setup and answers each message with handle.
func accepting(setup func(c *loop.Conn), handle loop.HandlerFunc) func(*loop.Conn) loop.Handler {
	return func(c *loop.Conn) loop.Handler {
		if setup != nil {
			setup(c)
		}
		return handle
	}
}

func TestHighWaterAndDrain(t *testing.T) {
	var events []string
	srv := &loop.Server{
		Codec: codec.Lines{},
		Accept: accepting(func(c *loop.Conn) {
			c.OnHighWater(10, func() { events = append(events, fmt.Sprint("high ", c.Pending())) })
			c.OnFlushed(func() { events = append(events, fmt.Sprint("drain ", c.Pending())) })
		}, echo),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("123456789012345\n") // taken at once, but above the mark before
		p.Block(0)
		p.Send("12345\n", "12345\n", "12345\n")
		p.Unblock()
		p.Block(0)
		p.Send("123\n")
		p.Unblock()
		if got, want := strings.Join(events, ", "), "high 16, drain 0, high 12, drain 0, drain 0"; got != want {
			t.Errorf("events: %s; want %s", got, want)
		}
	})
}

func TestPanicInWaterHookClosesTheConnection(t *testing.T) {
	srv := &loop.Server{
		Codec:  codec.Lines{},
		Accept: accepting(func(c *loop.Conn) { c.OnHighWater(0, func() { panic("high") }) }, echo),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		p.Block(0)
		p.Send("x\n")
		p.Unblock()
		var panicked *loop.PanicError
		if !errors.As(p.Reason(), &panicked) || panicked.Value != "high" {
			t.Errorf("closed with %v", p.Reason())
		}
		q.Send("y\n")
		if got := q.Received(); got != "y\n" {
			t.Errorf("the other connection received %q", got)
		}
	})
}

// The handler pauses on each message and resumes a while later: all arrives, in order, one message
// at a time.
func TestPausedReadingLosesNothing(t *testing.T) {
	var got []string
	srv := &loop.Server{
		Codec: codec.Lines{},
		Accept: accepting(nil, func(c *loop.Conn, msg []byte) error {
			got = append(got, string(msg))
			c.PauseRead()
			c.AfterFunc(time.Second, c.ResumeRead)
			return nil
		}),
	}
	for name, end := range map[string]func(p *looptest.Peer){
		"open":        func(*looptest.Peer) {},
		"half closed": (*looptest.Peer).CloseWrite,
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			bubble(t, srv2(srv), func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				var want []string
				for i := range 20 {
					line := fmt.Sprint("line ", i)
					want = append(want, line)
					p.Send(line[:3], line[3:]+"\n")
				}
				end(p)
				if len(got) != 1 {
					t.Errorf("paused after the first message, got %q", got)
				}
				srv.Sleep(10*time.Second + time.Millisecond)
				if len(got) != 11 {
					t.Errorf("after 10 s %d messages were delivered, want 11", len(got))
				}
				srv.Sleep(time.Minute)
				if strings.Join(got, ",") != strings.Join(want, ",") {
					t.Errorf("got %q", got)
				}
				if wantEnd := name != "open"; p.Ended() != wantEnd {
					t.Errorf("ended: %v, want %v", p.Ended(), wantEnd)
				}
			})
		})
	}
}

// The last input is held when reading is resumed, and only the end is after it: the engine may tell
// of the end before the loop has come to what is held.
func TestEndRightAfterResume(t *testing.T) {
	var got []string
	var c *loop.Conn
	srv := &loop.Server{
		NumLoops: 1,
		Accept: accepting(func(conn *loop.Conn) { c = conn; c.PauseRead() }, func(_ *loop.Conn, msg []byte) error {
			got = append(got, string(msg))
			return nil
		}),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("last words")
		p.Close()
		srv.Do(0, func(*loop.Loop) { c.ResumeRead() })
		if strings.Join(got, ",") != "last words" || !p.Ended() || p.Reason() != io.EOF {
			t.Errorf("got %q, ended %v with %v", got, p.Ended(), p.Reason())
		}
	})
}

// In the drain, a peer that keeps reading, however slowly, gets all its output. A peer that reads
// nothing has the close timeout.
func TestDrainWaitsForThoseThatRead(t *testing.T) {
	srv := &loop.Server{NumLoops: 1, Timeouts: loop.Timeouts{Close: 5 * time.Second}, Accept: accepting(nil, echo)}
	synctest.Test(t, func(t *testing.T) {
		s, err := looptest.TryStart(t, srv)
		if err != nil {
			t.Fatal(err)
		}
		slow, dead := s.Open(), s.Open()
		for _, p := range []*looptest.Peer{slow, dead} {
			p.Block(100)
			p.Write(bytes.Repeat([]byte("x"), 1000))
		}
		s.Shutdown()
		for i := range 5 {
			s.Sleep(4 * time.Second)
			slow.Take(1)
			if wantEnd := i > 0; slow.Ended() || dead.Ended() != wantEnd {
				t.Errorf("after %d s: ended: %v, %v", 4*(i+1), slow.Ended(), dead.Ended())
			}
		}
		slow.Unblock()
		var cut *loop.DrainError
		if err := s.Stop(); !errors.As(err, &cut) || cut.Cut != 1 {
			t.Errorf("Wait: %v", err)
		}
		if n := len(slow.Received()); n != 1000 || slow.WasReset() || !dead.WasReset() {
			t.Errorf("who went on taking got %d bytes", n)
		}
	})
}

// srv2 copies the settings of a server that has not started.
func srv2(s *loop.Server) *loop.Server { return &loop.Server{Codec: s.Codec, Accept: s.Accept} }

func TestPauseWithoutResume(t *testing.T) {
	var c *loop.Conn
	srv := &loop.Server{
		IdleTimeout: time.Minute,
		Accept:      accepting(func(conn *loop.Conn) { c = conn }, echo),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		srv.Do(c.Loop().Index(), func(*loop.Loop) { c.PauseRead() })
		p.Send("a", "b")
		srv.Sleep(90 * time.Second)
		if p.Ended() {
			t.Fatal("evicted although its bytes wait")
		}
		srv.Do(c.Loop().Index(), func(*loop.Loop) { c.Close() })
		srv.Sleep(2 * time.Second)
		if !p.Ended() || p.Received() != "" {
			t.Error("a paused connection could not be closed, or delivered something")
		}
	})
}

func TestFirstByteTimeout(t *testing.T) {
	srv := &loop.Server{Timeouts: loop.Timeouts{FirstByte: time.Second}, IdleTimeout: time.Minute, Accept: accepting(nil, echo)}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		silent, speaks := srv.Open(), srv.Open()
		speaks.Send("x")
		srv.Sleep(time.Second - time.Millisecond)
		if silent.Ended() {
			t.Error("evicted early")
		}
		srv.Sleep(2 * time.Millisecond)
		if !errors.Is(silent.Reason(), loop.ErrIdle) || speaks.Ended() {
			t.Errorf("silent: %v; the other one ended: %v", silent.Reason(), speaks.Ended())
		}
		srv.Sleep(time.Minute)
		if !errors.Is(speaks.Reason(), loop.ErrIdle) {
			t.Errorf("after the idle timeout: %v", speaks.Reason())
		}
	})
}

// A peer that keeps sending, a byte at a time, but never finishes its frame is closed; one that
// finishes frames is not.
func TestFrameTimeout(t *testing.T) {
	srv := &loop.Server{Timeouts: loop.Timeouts{Frame: 10 * time.Second}, Codec: codec.Lines{}, Accept: accepting(nil, echo)}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		loris, slow := srv.Open(), srv.Open()
		began := time.Now()
		for !loris.Ended() {
			loris.Send("x")
			slow.Send("y")
			srv.Sleep(4 * time.Second)
			slow.Send("\ny") // ends a frame and begins the next
			srv.Sleep(4 * time.Second)
			slow.Send("\n")
		}
		if d := time.Since(began); !errors.Is(loris.Reason(), loop.ErrSlowFrame) || d != 16*time.Second {
			t.Errorf("closed with %v at the look after %v", loris.Reason(), d)
		}
		srv.Sleep(time.Hour)
		if slow.Ended() {
			t.Errorf("a peer that finished its frames was closed: %v", slow.Reason())
		}
	})
}

func TestAcceptRate(t *testing.T) {
	srv := &loop.Server{Limits: loop.Limits{AcceptRate: 10}, Accept: accepting(nil, echo)}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		began := time.Now()
		for range 31 {
			srv.Open()
		}
		if d := time.Since(began); d < 2800*time.Millisecond || d > 3*time.Second {
			t.Errorf("31 connections took %v at 10 a second", d)
		}
	})
}

// Connections that MaxConnsPerIP refuses do not count: else one address could have those of all
// others wait.
func TestAcceptRateCountsNoRefused(t *testing.T) {
	flooder, other := netip.MustParseAddrPort("192.0.2.1:7"), netip.MustParseAddrPort("192.0.2.2:7")
	srv := &loop.Server{Limits: loop.Limits{AcceptRate: 10, MaxConnsPerIP: 2}, Accept: accepting(nil, echo)}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		began := time.Now()
		for range 50 {
			srv.OpenFrom(0, flooder)
		}
		srv.OpenFrom(0, other)
		if d := time.Since(began); d > 300*time.Millisecond {
			t.Errorf("another address waited for %v behind 48 refused connections at 10 a second, want 0.3 s at most", d)
		}
		testkit.Want(t, "refused", srv.Server.Stats().Refused, 48)
	})
}

func TestAcceptErrorsBackOff(t *testing.T) {
	var log bytes.Buffer
	srv := &loop.Server{Accept: accepting(nil, echo), Logger: zerolog.New(&log)}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		began := time.Now()
		for range 10 {
			srv.FailAccept(0, syscall.EMFILE)
		}
		p := srv.Open()
		p.Send("x")
		if got := p.Received(); got != "x" {
			t.Errorf("received %q", got)
		}
		// 5, 10, 20, ... 640 ms, then 1 s twice.
		if d := time.Since(began); d != 5*255*time.Millisecond+2*time.Second {
			t.Errorf("ten failures cost %v", d)
		}
		if got := strings.Count(log.String(), "cannot accept"); got != 3 { // at 0, 1.3 and 2.3 s
			t.Errorf("%d lines in 3.3 s: %s", got, log.String())
		}
		began = time.Now()
		srv.FailAccept(0, syscall.EMFILE)
		srv.FailAccept(0, syscall.EMFILE) // is taken when the pause after the one before is over
		testkit.Want(t, "first pause after a success", time.Since(began), 5*time.Millisecond)
		srv.Open() // the listener waits for the next one
		before := log.Len()
		srv.Server.AcceptNewcomers(false)
		srv.FailAccept(0, interrupted(func() { srv.Server.AcceptNewcomers(true) }))
		testkit.Want(t, "log of an Accept that a handover has ended", log.String()[before:], "")
	})
}

// AcceptNewcomers waits for an Accept that is under way, and for the loop of what it returns, but not
// for longer than the caller said in all.
func TestAcceptNewcomersReturnsInTime(t *testing.T) {
	ms := time.Millisecond
	for _, tt := range []struct{ wait, accepts, arrives, want time.Duration }{
		{1000 * ms, 0, 0, 0},
		{1000 * ms, 220 * ms, 300 * ms, 300 * ms},
		{1000 * ms, 220 * ms, time.Hour, 1000 * ms},
		{1000 * ms, time.Hour, 0, 250 * ms}, // perhaps it never returns
		{1000 * ms, time.Hour, time.Hour, 1000 * ms},
		{300 * ms, 100 * ms, time.Hour, 300 * ms},
		{300 * ms, time.Hour, 200 * ms, 200 * ms}, // time is left for what arrives
		{300 * ms, time.Hour, time.Hour, 300 * ms},
	} {
		t.Run(fmt.Sprintf("%v of %v and %v", tt.wait, tt.accepts, tt.arrives), func(t *testing.T) {
			bubble(t, &loop.Server{Accept: accepting(nil, echo)}, func(t *testing.T, srv *looptest.Server) {
				accepted, arrived := srv.Server.Accepting()
				time.AfterFunc(tt.accepts-ms/2, accepted) // between two looks
				time.AfterFunc(tt.arrives-ms/2, arrived)
				synctest.Wait()
				began := time.Now()
				srv.Server.AcceptNewcomersWithin(tt.wait)
				testkit.Want(t, "took", time.Since(began), tt.want)
				srv.Server.AcceptNewcomersWithin(tt.wait) // does nothing
				testkit.Want(t, "took in all", time.Since(began), tt.want)
				srv.Sleep(2 * time.Hour)
				srv.Server.AcceptNewcomers(true)
			})
		})
	}
}

// interrupted is the error of a deadline that has passed. It is called when a caller asks for that.
type interrupted func()

func (interrupted) Error() string          { return "interrupted" }
func (f interrupted) Is(target error) bool { f(); return target == os.ErrDeadlineExceeded }
