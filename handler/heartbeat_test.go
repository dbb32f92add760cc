package handler_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

var silent = handler.Shared(loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil }))

func TestPingPong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(silent, handler.Heartbeat{Interval: time.Minute, Message: []byte("PING")}))
		p := srv.Open()
		testkit.Pass(time.Minute - time.Millisecond)
		wantReceived(t, p, "")
		testkit.Pass(time.Millisecond)
		wantReceived(t, p, "PING\n")
		p.Send("PON") // a part of a message is life, too
		for range 10 {
			testkit.Pass(59 * time.Second)
			p.Send("x")
			wantReceived(t, p, "")
		}
		testkit.Pass(time.Minute)
		wantReceived(t, p, "PING\n")
		testkit.Pass(time.Minute)
		wantReceived(t, p, "PING\n")
		testkit.Pass(time.Minute - time.Millisecond)
		wantOpen(t, p)
		testkit.Pass(time.Millisecond)
		wantReason(t, p, handler.ErrHeartbeat)
		wantReason(t, p, loop.ErrIdle)
		wantReceived(t, p, "")
	})
}

// An answer in time starts the count again.
func TestPongStartsAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(silent, handler.Heartbeat{Interval: time.Minute, Message: []byte("PING"), Missed: 1}))
		p := srv.Open()
		for range 100 {
			testkit.Pass(time.Minute)
			wantReceived(t, p, "PING\n")
			testkit.Pass(59 * time.Second)
			p.Send("PONG\n")
		}
		wantOpen(t, p)
		testkit.Pass(2 * time.Minute)
		wantReason(t, p, handler.ErrHeartbeat)
	})
}

func TestExpectOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(silent, handler.Heartbeat{Interval: time.Minute, Missed: 3}))
		p := srv.Open()
		testkit.Pass(2 * time.Minute)
		p.Send("\n")
		testkit.Pass(3*time.Minute - time.Millisecond)
		wantOpen(t, p)
		testkit.Pass(time.Millisecond)
		wantReason(t, p, handler.ErrHeartbeat)
		wantReceived(t, p, "")
	})
}

func TestSendOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(echoes, handler.Heartbeat{Interval: time.Minute, Message: []byte("."), SendOnly: true}))
		p := srv.Open()
		for range 1000 {
			testkit.Pass(time.Minute)
			wantReceived(t, p, ".\n")
		}
		testkit.Pass(30 * time.Second)
		p.Send("a\n") // the answer is written: the next ping is a minute after that
		wantReceived(t, p, "a\n")
		testkit.Pass(time.Minute - time.Millisecond)
		wantReceived(t, p, "")
		testkit.Pass(time.Millisecond)
		wantReceived(t, p, ".\n")
		wantOpen(t, p)
	})
}

// What is heard puts off no ping, and what the server writes by itself does.
func TestSendOnlyCountsWrites(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ref loop.Ref
		srv := startLines(t, 1, handler.Chain(func(c *loop.Conn) loop.Handler {
			ref = c.Ref()
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		}, handler.Heartbeat{Interval: time.Minute, Message: []byte("."), SendOnly: true}))
		p := srv.Open()
		testkit.Pass(30 * time.Second)
		p.Send("a\n")
		testkit.Pass(30 * time.Second)
		wantReceived(t, p, ".\n")
		for range 5 {
			testkit.Pass(59 * time.Second)
			ref.Tell(func(c *loop.Conn) { c.Send([]byte("event")) })
			testkit.Pass(0)
			wantReceived(t, p, "event\n")
		}
		testkit.Pass(time.Minute)
		wantReceived(t, p, ".\n")
	})
}

// A peer that does not read must not collect pings without end.
func TestSendOnlyToBlocked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(silent, handler.Heartbeat{Interval: time.Minute, Message: []byte("."), SendOnly: true}))
		p := srv.Open()
		p.Block(0)
		testkit.Pass(24 * time.Hour)
		p.Unblock()
		wantReceived(t, p, ".\n")
	})
}

func TestHeartbeatBothWays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(silent,
			handler.Heartbeat{Interval: 10 * time.Second, Message: []byte("."), SendOnly: true},
			handler.Heartbeat{Interval: 10 * time.Second},
		))
		p := srv.Open()
		testkit.Pass(19 * time.Second)
		wantReceived(t, p, ".\n")
		wantOpen(t, p)
		testkit.Pass(time.Second)
		wantReason(t, p, handler.ErrHeartbeat)
	})
}

func TestPingFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(silent, handler.Heartbeat{
			Interval: time.Minute,
			Ping:     func(*loop.Conn) error { return io.ErrShortWrite },
		}))
		p := srv.Open()
		testkit.Pass(time.Minute)
		wantReason(t, p, io.ErrShortWrite)
	})
}

// Connections that opened in one instant are pinged at different ones, none of them early.
func TestHeartbeatJitter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		pinged := make(map[time.Duration]int)
		srv := startLines(t, 1, handler.Chain(silent, handler.Heartbeat{
			Interval: time.Minute,
			Jitter:   10 * time.Second,
			Ping: func(*loop.Conn) error {
				pinged[time.Since(start)]++
				return nil
			},
		}))
		for range 100 {
			srv.Open()
		}
		testkit.Pass(70 * time.Second)
		for when, n := range pinged {
			if when < time.Minute || when > 70*time.Second || n > 10 {
				t.Errorf("%d pings at %v", n, when)
			}
		}
		if len(pinged) < 50 {
			t.Errorf("100 connections were pinged at %d different times only", len(pinged))
		}
	})
}

// A loop that was late itself finds the answers that wait in the sockets.
func TestHeartbeatAfterStall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, handler.Chain(silent, handler.Heartbeat{Interval: time.Second, Missed: 1}))
		p, dead := srv.Open(), srv.Open()
		testkit.Pass(500 * time.Millisecond)
		resume := srv.Stall(0)
		p.Send("alive\n")
		testkit.Pass(10 * time.Second)
		resume()
		testkit.Pass(500 * time.Millisecond)
		wantOpen(t, p)
		wantReason(t, dead, handler.ErrHeartbeat)
	})
}

func TestHeartbeatMisuse(t *testing.T) {
	ping := func(*loop.Conn) error { return nil }
	for what, h := range map[string]handler.Heartbeat{
		"no Interval":             {},
		"Interval without a unit": {Interval: 30},
		"Jitter without a unit":   {Interval: time.Second, Jitter: 5000},
		"negative Missed":         {Interval: time.Second, Missed: -1},
		"negative Jitter":         {Interval: time.Second, Jitter: -1},
		"two pings":               {Interval: time.Second, Ping: ping, Message: []byte("x")},
		"SendOnly without a ping": {Interval: time.Second, SendOnly: true},
	} {
		wantPanic(t, what, func() { h.Wrap(silent) })
	}
	if errors.Is(loop.ErrIdle, handler.ErrHeartbeat) {
		t.Error("ErrIdle must not be ErrHeartbeat")
	}
}

// In a pipe the stream is the pipe's: a Heartbeat neither pings in it nor ends it, whether the pipe
// begins in Accept or later.
func TestHeartbeatInAPipe(t *testing.T) {
	for _, later := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			var first *loop.Conn
			srv := startLines(t, 1, handler.Chain(func(c *loop.Conn) loop.Handler {
				switch {
				case first == nil:
					first = c
				case later:
					c.AfterFunc(0, func() { loop.Pipe(first, c, loop.PipeConfig{}) })
				default:
					loop.Pipe(first, c, loop.PipeConfig{})
				}
				return silent(c)
			}, handler.Heartbeat{Interval: time.Minute, Message: []byte("PING")}))
			p, q := srv.Open(), srv.Open()
			for range 10 {
				testkit.Pass(50 * time.Second)
				q.Send("data")
			}
			testkit.Pass(time.Hour)
			wantReceived(t, p, strings.Repeat("data", 10))
			wantReceived(t, q, "")
			wantOpen(t, p)
		})
	}
}
