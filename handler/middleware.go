package handler

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// Defaults of Log.MaxLogged and Heartbeat.Missed.
const (
	DefaultMaxLogged = 128
	DefaultMissed    = 2
)

// A Middleware adds something around the handlers of connections: a limit, a heartbeat, a log. It
// wraps the Accept function rather than a handler, so that it sees the Conn when it opens (to set
// timers and hooks, or to refuse it), and makes new state for each connection. One that only needs
// hooks returns the handler of next unchanged, and costs nothing per message.
type Middleware interface {
	// Wrap is called once, when the server is assembled; its result is called on the loop of each
	// connection, on several loops at once. If next returns nil, so must its result.
	Wrap(next loop.Accept) loop.Accept
}

// MiddlewareFunc is a Middleware that is a function.
type MiddlewareFunc func(next loop.Accept) loop.Accept

// Wrap calls f.
func (f MiddlewareFunc) Wrap(next loop.Accept) loop.Accept { return f(next) }

// Chain returns accept wrapped in middlewares. The first is the outermost: it sees each connection
// first, and each message first. A nil accept or middleware panics.
func Chain(accept loop.Accept, middlewares ...Middleware) loop.Accept {
	require(accept != nil, "Chain with a nil Accept")
	for i := len(middlewares) - 1; i >= 0; i-- {
		require(middlewares[i] != nil, "Chain with a nil Middleware")
		accept = middlewares[i].Wrap(accept)
		require(accept != nil, "a Middleware wrapped an Accept into nil")
	}
	return accept
}

// Shared returns an Accept that gives all connections the same handler h. Its methods are called on
// all loops concurrently, so its state, if any, must be safe for that: a loop.Local, atomics, a
// Group. A nil h panics.
func Shared(h loop.Handler) loop.Accept {
	require(h != nil, "Shared with a nil Handler")
	return func(*loop.Conn) loop.Handler { return h }
}

// messageFilter is a handler with a filter before OnMessage. If that returns false, the message is
// not passed on, and OnMessage returns err.
type messageFilter struct {
	loop.Handler
	filter func(c *loop.Conn, msg []byte) (pass bool, err error)
}

func (h *messageFilter) OnMessage(c *loop.Conn, msg []byte) error {
	if pass, err := h.filter(c, msg); !pass {
		return err
	}
	return h.Handler.OnMessage(c, msg)
}

// Unwrap is for loop.HandlerAs.
func (h *messageFilter) Unwrap() any { return h.Handler }

// Log is a Middleware that writes a line to loop.Conn.Log when a connection opens or is refused,
// and one with its age and the reason when it has closed; optionally one for each message received.
// The reason "close" means our own Close without an error. A panic is logged as an error; its stack
// is in the line that the loop writes. The zero Log costs nothing per message.
type Log struct {
	Level        zerolog.Level // of opens and closes; the zero value is zerolog.DebugLevel
	Messages     bool          // a line per message, before the handler gets it
	MessageLevel zerolog.Level // of these; the zero value is zerolog.DebugLevel
	// MaxLogged is how many bytes of a message its line shows. 0 means 128, a negative one none.
	MaxLogged int
}

// Wrap implements Middleware.
func (l Log) Wrap(next loop.Accept) loop.Accept {
	if l.MaxLogged == 0 {
		l.MaxLogged = DefaultMaxLogged
	}
	return func(c *loop.Conn) loop.Handler {
		start := c.Loop().Now()
		inner := next(c)
		if inner == nil {
			c.Log().WithLevel(l.Level).Msg("refused")
			return nil
		}
		c.Log().WithLevel(l.Level).Stringer("local", c.LocalAddr()).Int("loop", c.Loop().Index()).Msg("open")
		c.AfterClose(func(err error) { l.closed(c, start, err) })
		if l.Messages {
			return &messageFilter{inner, l.message}
		}
		return inner
	}
}

func (l *Log) closed(c *loop.Conn, start time.Time, err error) {
	level, reason := l.Level, "close"
	if err != nil {
		reason = err.Error()
	}
	if _, panicked := errors.AsType[*loop.PanicError](err); panicked {
		level = zerolog.ErrorLevel
	}
	c.Log().WithLevel(level).Str("reason", reason).Dur("age", c.Loop().Now().Sub(start)).Msg("closed")
}

// message writes the line of one message.
func (l *Log) message(c *loop.Conn, msg []byte) (pass bool, err error) {
	if e := c.Log().WithLevel(l.MessageLevel); e.Enabled() {
		if e = e.Int("len", len(msg)); l.MaxLogged > 0 {
			e = e.Bytes("msg", msg[:min(len(msg), l.MaxLogged)])
		}
		e.Msg("message")
	}
	return true, nil
}

// ErrRateLimit closes a connection whose peer sends messages faster than Limit allows.
var ErrRateLimit = errors.New("handler: message rate limit exceeded")

// Limit is a Middleware that bounds the rate of each connection's messages: a token bucket of Burst
// messages that fills at PerSecond. Time in which the connection was not read does not count
// against a peer that keeps to the rate: the messages of many seconds may then arrive at once. It
// is not read while the loop is blocked, the process stopped, or reading paused (by PauseRead,
// Replies, jobs of loop.Offload and so on). Burst has to absorb all other delays, of the network or
// of a loop that stalls for less than 25 ms: make it at least two, and as many messages as come in
// 50 ms. Frames that the codec answers by itself, such as pings of WebSocket, count as messages,
// except its handshake. Frames that are neither a message nor answered do not count: WebSocket's
// codec limits pongs and empty fragments, and a message's other fragments by MaxMessage.
//
// A loop cannot wait, so an excess message is not delayed: the connection closes with ErrRateLimit,
// or with Drop the message is dropped; it still counts as activity for idle timeouts and
// heartbeats. To limit bytes, see the limits of loop.Server and of the codec. Limit costs one
// reading of the clock per message. A loop whose connections have sent something in the last minute
// has a timer of 25 ms, by which it notices that the process was stopped.
type Limit struct {
	// PerSecond is the rate in the long run; 0.1 is one message in ten seconds. It must be
	// positive.
	PerSecond float64
	// Burst is how many messages may arrive at once after a pause. 0 means PerSecond rounded up.
	Burst int
	Drop  bool // drop excess messages instead of closing the connection
	// Exceeded, if not nil, is called on the loop for each excess message, to count it or to notify
	// the peer. Without Drop, the connection closes after that. msg is valid until Exceeded
	// returns; it is nil for a frame that the codec would answer.
	Exceeded func(c *loop.Conn, msg []byte)
}

// Wrap implements Middleware. It panics if the fields make no sense.
func (l Limit) Wrap(next loop.Accept) loop.Accept {
	require(l.PerSecond > 0 && !math.IsInf(l.PerSecond, 0), "Limit.PerSecond must be a positive number")
	require(l.Burst >= 0, "Limit.Burst is negative")
	full := bucket{rate: l.PerSecond / float64(time.Second), burst: float64(cmp.Or(l.Burst, int(min(math.Ceil(l.PerSecond), math.MaxInt32))))}
	full.tokens = full.burst
	return func(c *loop.Conn) loop.Handler {
		inner := next(c)
		if inner == nil {
			return nil
		}
		b := &limited{messageFilter: messageFilter{Handler: inner}, bucket: full, limit: &l, start: c.Loop().Now()}
		b.follow(c.Loop())
		b.unread = in.Unread(c)
		b.filter = b.take
		return b
	}
}

// limited is a handler of a connection with a Limit.
type limited struct {
	messageFilter
	bucket
	limit   *Limit
	start   time.Time
	loop    *loop.Loop // whose stops it uses
	stops   *stops
	greeted bool // the codec has answered its handshake
}

// FilterReply is called by the loop before the codec answers something that is no message.
func (b *limited) FilterReply(c *loop.Conn) (pass bool, err error) {
	if !b.greeted {
		if o, ok := c.Codec().(codec.Opener); ok {
			b.greeted = o.Opening() == nil
			return true, nil
		}
		b.greeted = true
	}
	return b.take(c, nil)
}

func (b *limited) follow(l *loop.Loop) { b.loop, b.stops = l, &locals.Get(l).stops }

func (b *limited) take(c *loop.Conn, msg []byte) (pass bool, err error) {
	now := c.Loop().Now()
	if l := c.Loop(); l != b.loop {
		b.follow(l)
	}
	b.stops.watch(b.loop, now)
	at := now.Sub(b.start)
	if b.bucket.excused > 0 && at <= b.bucket.until {
		if waits, _ := in.Input(c); waits { // more of what the peer sent while it was not read, maybe
			b.bucket.until = at + b.bucket.patience()
		}
	}
	switch l := b.limit; {
	case b.bucket.take(at, in.Unread(c)):
		return true, nil
	case l.Exceeded != nil:
		l.Exceeded(c, msg)
		fallthrough
	default:
		if l.Drop {
			return false, nil
		}
		return false, ErrRateLimit
	}
}

// stops is a timer of a loop that has it notice when the process was stopped.
type stops struct {
	timer loop.Timer
	until time.Time // it goes on
}

const stopTick, stopWatch = 25 * time.Millisecond, time.Minute

func (s *stops) watch(l *loop.Loop, now time.Time) {
	s.until = now.Add(stopWatch)
	if !s.timer.Pending() {
		s.timer = l.Every(stopTick, func() {
			if l.Now().After(s.until) {
				s.timer.Stop()
			}
		})
	}
}

// A bucket is a token bucket. A token is one message.
type bucket struct {
	rate, burst float64 // tokens per nanosecond, and at most
	tokens      float64
	at          time.Duration // when tokens was right

	// Messages that the peer sent while it was not read come all at once. So what the full bucket
	// could not hold of that time is kept for them, and forfeited soon after no input waits any more.
	unread  time.Duration // for how long it was not read in all, when last looked at
	lost    float64       // tokens that the full bucket could not hold since that last grew
	excused float64       // of these, those of the time in which it was not read
	until   time.Duration // when they are forfeited; time in which it is not read does not count
}

// take takes one token at now, if there is one. unread is for how long the peer was not read in
// all, in which times may be counted twice.
func (b *bucket) take(now, unread time.Duration) bool {
	const whole = 1 - 1e-6 // of a peer that keeps to the rate exactly, as fractions add up
	filled := b.tokens + float64(now-b.at)*b.rate
	b.tokens, b.at = min(b.burst, filled), now
	b.lost += filled - b.tokens
	more := max(0, unread-b.unread)
	if now-more > b.until {
		b.excused = 0
	}
	if more > 0 {
		b.excused += min(float64(more)*b.rate, b.lost)
		b.unread, b.lost = unread, 0
		b.until = now + b.patience()
	}
	if b.tokens+b.excused < whole {
		return false
	}
	if b.tokens--; b.tokens < 0 {
		b.excused = max(0, b.excused+b.tokens)
		b.tokens = 0
	}
	return true
}

// patience is how long excused tokens are kept.
func (b *bucket) patience() time.Duration {
	return time.Duration(min(max(float64(time.Second), 2/b.rate), float64(time.Hour)))
}

// ErrHeartbeat, wrapped with the duration, closes a connection whose peer was silent for too long.
// It is also loop.ErrIdle to errors.Is.
var ErrHeartbeat = fmt.Errorf("handler: heartbeat missed (%w)", loop.ErrIdle)

// Heartbeat is a Middleware that keeps connections alive and finds dead ones. It has settings for
// three kinds of protocols:
//
//   - Ping and pong (WebSocket, IRC, a game): Interval and a Message or Ping. A peer that was
//     silent for an Interval gets a ping, and another after each further Interval; after Missed
//     unanswered pings it is closed. A peer that sends anyway is never pinged.
//   - The peer sends by itself (MQTT, a reporting device): Interval, and neither Message nor Ping.
//     It is closed after Missed Intervals of silence.
//   - One way (a proxy or a NAT that forgets silent connections; events pushed to a browser):
//     Interval, a Message or Ping, and SendOnly. A ping is sent when nothing was written for an
//     Interval.
//
// For protocols in which both sides send (AMQP, STOMP) chain the second and the third.
//
// Any received byte counts as activity. No connection closes early: a loop that was late checks the
// socket first, as loop.Conn.OnIdle does. A Heartbeat costs nothing per message (SendOnly: a
// reading of the clock per write) and shares one timer with the idle hooks and the idle timeout. It
// ends when the connection joins a loop.Pipe.
type Heartbeat struct {
	// Interval is the silence before a ping, and between two pings. It must be positive.
	Interval time.Duration
	// Message is the ping: one message, framed by the connection's codec.
	Message []byte
	// Ping, instead of Message, sends a ping that differs each time or is not a message of the
	// codec. It is called on the loop. An error closes c, except codec.ErrClosed: the conversation
	// has not begun or is ending.
	Ping func(c *loop.Conn) error
	// Missed is how many heartbeats a peer may miss. 0 means DefaultMissed, 2. With a ping, silence
	// of (Missed+1) times Interval closes the connection: 30 s and 2 mean pings at 30 and 60 s, and
	// the close at 90 s. Without one, Missed times Interval does.
	Missed int
	// SendOnly: never close a silent peer, and ping when nothing was written for an Interval.
	SendOnly bool
	// Jitter adds a random time below it to each connection's Interval, so that clients that
	// connected together are not pinged together. 0 means none.
	Jitter time.Duration
}

// Wrap implements Middleware. It panics if the fields make no sense.
func (h Heartbeat) Wrap(next loop.Accept) loop.Accept {
	require(h.Interval > 0, "Heartbeat.Interval must be positive")
	requireUnit("Heartbeat.Interval", h.Interval)
	requireUnit("Heartbeat.Jitter", h.Jitter)
	require(h.Missed >= 0, "Heartbeat.Missed is negative")
	require(h.Jitter >= 0, "Heartbeat.Jitter is negative")
	require(h.Ping == nil || h.Message == nil, "Heartbeat has both a Ping and a Message")
	require(!h.SendOnly || h.Ping != nil || h.Message != nil, "Heartbeat.SendOnly needs a Ping or a Message")
	if h.Missed == 0 {
		h.Missed = DefaultMissed
	}
	if h.Message != nil {
		message := bytes.Clone(h.Message)
		h.Ping = func(c *loop.Conn) error { return c.Send(message) }
	}
	return func(c *loop.Conn) loop.Handler {
		inner := next(c)
		if inner != nil && !in.IsPiped(c) { // the stream is the pipe's
			h.start(c)
		}
		return inner
	}
}

// start sets the hook of one connection.
func (h *Heartbeat) start(c *loop.Conn) {
	interval, closeAt, ended := h.Interval, h.Missed, false
	if h.Jitter > 0 {
		interval += min(rand.N(h.Jitter), math.MaxInt64-interval)
	}
	if h.Ping != nil {
		closeAt++
	}
	if h.SendOnly {
		c.OnIdle(loop.IdleWrite, interval, func(int) {
			if c.Pending() == 0 { // else there is something on its way already, and a ping would not overtake it
				h.ping(c)
			}
		})
		return
	}
	c.OnIdle(loop.IdleRead, interval, func(n int) {
		if n == 1 {
			ended = false
		}
		switch {
		case ended || !converses(c): // a handshake has a time of its own
		case n >= closeAt:
			c.CloseWithError(fmt.Errorf("%w: nothing received for %v", ErrHeartbeat, time.Duration(n)*interval))
		case h.Ping != nil:
			ended = !h.ping(c)
		}
	})
}

// converses reports whether c's protocol is between its opening and its closing handshake, if the
// codec can say.
func converses(c *loop.Conn) bool {
	cd := c.Codec()
	if s, ok := cd.(*codec.Stacked); ok {
		cd = s.Outer()
	}
	o, ok := cd.(interface{ IsOpen() bool })
	return !ok || o.IsOpen()
}

// ping reports false if the conversation has not begun, or is ending, so that no ping can be sent.
func (h *Heartbeat) ping(c *loop.Conn) bool {
	err := h.Ping(c)
	if err != nil && !ends(err) {
		c.CloseWithError(fmt.Errorf("handler: heartbeat: %w", err))
	}
	return !ends(err)
}
