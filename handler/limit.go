package handler

import (
	"errors"
	"math"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// ErrRateLimit is the reason of a connection that was closed because its peer sent messages faster
// than Limit allows.
var ErrRateLimit = errors.New("handler: message rate limit exceeded")

// Limit is a Middleware that bounds how many messages each connection may send: a token bucket of
// Burst messages that fills at PerSecond. Which messages pass depends on their times only, and a
// peer that keeps to the rate is never hit, even if the loop was blocked or the process stopped, so
// that messages of many seconds come at once. What delays messages by less than that, the network
// and a loop that is away for less than 25 ms, is for Burst: let it be what comes in 50 ms at least,
// and two, if messages come at exact times.
//
// A loop cannot wait, so a message that is too many is not delayed: the connection closes with
// ErrRateLimit, or with Drop the message is dropped. What is dropped still counts as life for idle
// times and heartbeats. To limit bytes, see the limits of loop.Server and of the codec.
//
// It costs one reading of the clock per message, and no timer.
type Limit struct {
	// PerSecond is the rate in the long run; 0.1 is one message in ten seconds. It must be
	// positive.
	PerSecond float64

	// Burst is how many messages may come at once after a silence. 0 means what comes in a second:
	// PerSecond rounded up.
	Burst int

	// Drop drops the messages that are too many, instead of closing the connection.
	Drop bool

	// Exceeded is called on the loop for each message that is too many, before the connection
	// closes if it does: to count, or to tell the peer. msg is valid until it returns. It may be
	// nil.
	Exceeded func(c *loop.Conn, msg []byte)
}

// Wrap implements Middleware. It panics if the fields make no sense.
func (l Limit) Wrap(next loop.Accept) loop.Accept {
	if !(l.PerSecond > 0) || math.IsInf(l.PerSecond, 0) {
		panic("handler: Limit.PerSecond must be a positive number")
	}
	if l.Burst < 0 {
		panic("handler: Limit.Burst is negative")
	}
	bucket := l.bucket()
	return func(c *loop.Conn) loop.Handler {
		inner := next(c)
		if inner == nil {
			return nil
		}
		return &limited{Handler: inner, limit: &l, bucket: bucket.from(c.Loop().Away()), start: c.Loop().Now()}
	}
}

// bucket returns a full one.
func (l *Limit) bucket() bucket {
	const forever = math.MaxInt64 / 4
	burst := float64(l.Burst)
	if l.Burst == 0 {
		burst = math.Ceil(l.PerSecond)
	}
	interval := math.Floor(min(max(1, float64(time.Second)/l.PerSecond), forever))
	return bucket{
		interval: time.Duration(interval),
		capacity: time.Duration(min((burst-1)*interval, forever)),
	}
}

// A bucket is a token bucket that needs no filling, by the generic cell rate algorithm: it only
// knows when the message after this one would be due if all came at the exact rate.
type bucket struct {
	interval time.Duration // between two messages at the rate
	capacity time.Duration // how far ahead of that they may be
	due      time.Duration

	// What the peer sent while the loop was away comes all at once: it is let through, up to what
	// the rate allowed in that time, if it is handled soon after.
	away    time.Duration // loop.Loop.Away when last looked at
	excused time.Duration // of that, not yet used
	until   time.Duration // when it is forfeited
}

// excuseFor is how long after an absence of the loop what came meanwhile is expected.
const excuseFor = time.Second

// excuse takes how long the loop was away in all.
func (b *bucket) excuse(away, now time.Duration) {
	if away != b.away {
		b.excused = min(b.excused+away-b.away, away)
		b.away, b.until = away, now+excuseFor
	}
}

// take takes one token at now, and reports whether there was one.
func (b *bucket) take(now time.Duration) bool {
	if b.due-now > b.capacity {
		if b.excused < b.interval || now > b.until {
			return false
		}
		b.excused -= b.interval
		return true
	}
	b.due = max(b.due, now) + b.interval
	return true
}

// from returns b for a connection that opens when its loop was away for so long in all.
func (b bucket) from(away time.Duration) bucket {
	b.away = away
	return b
}

// limited is the handler of one connection.
type limited struct {
	loop.Handler
	limit  *Limit
	bucket bucket
	start  time.Time
}

func (h *limited) OnMessage(c *loop.Conn, msg []byte) error {
	now := c.Loop().Now().Sub(h.start)
	h.bucket.excuse(c.Loop().Away(), now)
	if h.bucket.take(now) {
		return h.Handler.OnMessage(c, msg)
	}
	if h.limit.Exceeded != nil {
		h.limit.Exceeded(c, msg)
	}
	if h.limit.Drop {
		return nil
	}
	return ErrRateLimit
}

// Unwrap lets loop.HandlerAs look through.
func (h *limited) Unwrap() any { return h.Handler }
