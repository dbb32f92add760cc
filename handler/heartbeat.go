package handler

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// DefaultMissed is how many heartbeats a peer may miss if Heartbeat.Missed is zero.
const DefaultMissed = 2

// ErrHeartbeat is the reason, wrapped with how long that was, of a connection that was closed
// because its peer was silent for too long. It is a kind of loop.ErrIdle: errors.Is reports true
// for both.
var ErrHeartbeat error = heartbeatError{}

type heartbeatError struct{}

func (heartbeatError) Error() string { return "handler: heartbeat missed" }
func (heartbeatError) Unwrap() error { return loop.ErrIdle }

// Heartbeat is a Middleware that keeps connections alive and finds those that are dead. Three kinds
// of protocol need three settings:
//
//   - Ping and pong (WebSocket, IRC, a game): set Interval and a Ping. A peer that was not heard of
//     for an Interval gets a ping, and another after each further one; once Missed pings were left
//     without an answer for an Interval each, it is closed. A peer that talks anyway is never pinged.
//   - The peer sends by itself (MQTT, a device that reports): set Interval and no Ping. It is closed
//     after Missed Intervals of silence.
//   - One way (a proxy or a NAT in between forgets silent connections; events pushed to a browser):
//     set Interval, a Ping, and SendOnly. A ping is sent when nothing was written for an Interval, and
//     nobody is closed.
//
// For protocols in which both sides send by themselves (AMQP, STOMP) chain two: the second and the
// third kind.
//
// Each byte that comes in counts as life, of whatever message or part of one. Nothing is early: a
// loop that was late itself looks into the socket first, as loop.Conn.OnIdle does. It costs nothing
// per message (SendOnly: a reading of the clock per write) and shares one timer with all idle hooks
// and the idle timeout of the connection.
type Heartbeat struct {
	// Interval is how long the silence lasts before a ping, and between two. It must be positive.
	Interval time.Duration

	// Message is the ping: one message, framed by the connection's codec. Or:
	Message []byte

	// Ping sends the ping, for one that is made anew each time or that is not a message of the
	// codec. It is called on the loop. An error closes c with it.
	Ping func(c *loop.Conn) error

	// Missed is how many heartbeats a peer may miss. 0 means DefaultMissed, 2. With a ping, silence
	// of (Missed+1) times Interval closes: 30 s and 2 mean pings at 30 and 60 s, and the end at 90
	// s. Without one, Missed times Interval does.
	Missed int

	// SendOnly: never close a peer for its silence, and ping it when nothing was written for an
	// Interval, instead of when nothing was heard.
	SendOnly bool

	// Jitter adds to each connection's Interval a random time below this, chosen once, so that
	// clients that connected together are not pinged together. 0 means none.
	Jitter time.Duration
}

// Wrap implements Middleware. It panics if the fields make no sense.
func (h Heartbeat) Wrap(next loop.Accept) loop.Accept {
	h.check()
	if h.Missed == 0 {
		h.Missed = DefaultMissed
	}
	if h.Ping == nil && h.Message != nil {
		message := bytes.Clone(h.Message)
		h.Ping = func(c *loop.Conn) error { return c.Send(message) }
	}
	return func(c *loop.Conn) loop.Handler {
		inner := next(c)
		if inner != nil {
			h.start(c)
		}
		return inner
	}
}

func (h Heartbeat) check() {
	switch {
	case h.Interval <= 0:
		panic("handler: Heartbeat.Interval must be positive")
	case h.Missed < 0:
		panic("handler: Heartbeat.Missed is negative")
	case h.Jitter < 0:
		panic("handler: Heartbeat.Jitter is negative")
	case h.Ping != nil && h.Message != nil:
		panic("handler: Heartbeat has both a Ping and a Message")
	case h.SendOnly && h.Ping == nil && h.Message == nil:
		panic("handler: Heartbeat.SendOnly needs a Ping or a Message")
	}
}

// start sets the hook of one connection.
func (h *Heartbeat) start(c *loop.Conn) {
	interval := h.Interval
	if h.Jitter > 0 {
		interval += rand.N(h.Jitter)
	}
	switch {
	case h.SendOnly:
		c.OnIdle(loop.IdleWrite, interval, func(int) {
			if c.Pending() == 0 { // else there is something on its way already, and a ping would not overtake it
				h.ping(c)
			}
		})
	case h.Ping == nil:
		c.OnIdle(loop.IdleRead, interval, func(n int) {
			if n >= h.Missed {
				c.CloseWithError(missed(n, interval))
			}
		})
	default:
		c.OnIdle(loop.IdleRead, interval, func(n int) {
			if n > h.Missed {
				c.CloseWithError(missed(n, interval))
				return
			}
			h.ping(c)
		})
	}
}

func (h *Heartbeat) ping(c *loop.Conn) {
	if err := h.Ping(c); err != nil && !errors.Is(err, loop.ErrClosed) {
		c.CloseWithError(fmt.Errorf("handler: heartbeat: %w", err))
	}
}

// missed returns the reason for closing after n intervals of silence.
func missed(n int, interval time.Duration) error {
	return fmt.Errorf("%w: nothing received for %v", ErrHeartbeat, time.Duration(n)*interval)
}
