package handler

import (
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
)

// DefaultMaxLogged is how many bytes of a message Log shows if Log.MaxLogged is zero.
const DefaultMaxLogged = 128

// Log is a Middleware that writes a line to loop.Conn.Log when a connection opens or is refused,
// and one with its age and the reason when it has closed; on request one for each message received.
// The reason "close" stands for our own Close without an error. A connection that closes because
// its code panicked is logged as an error; the stack is in the line that the loop has written.
//
// The zero Log logs opens and closes at zerolog.DebugLevel, and then costs nothing per message.
type Log struct {
	// Level is the level of opens and closes. The zero value is zerolog.DebugLevel.
	Level zerolog.Level

	// Messages asks for a line per message, before the handler gets it.
	Messages bool

	// MessageLevel is the level of these. The zero value is zerolog.DebugLevel.
	MessageLevel zerolog.Level

	// MaxLogged is how many bytes of a message its line shows. 0 means DefaultMaxLogged, 128. A
	// negative one shows none, only the length.
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
			return &logged{Handler: inner, log: &l}
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
	age := c.Loop().Now().Sub(start)
	c.Log().WithLevel(level).Str("reason", reason).Dur("age", age).Msg("closed")
}

// message writes the line of one message.
func (l *Log) message(c *loop.Conn, msg []byte) {
	e := c.Log().WithLevel(l.MessageLevel)
	if !e.Enabled() {
		return
	}
	if e = e.Int("len", len(msg)); l.MaxLogged > 0 {
		e = e.Bytes("msg", msg[:min(len(msg), l.MaxLogged)])
	}
	e.Msg("message")
}

type logged struct {
	loop.Handler
	log *Log
}

func (h *logged) OnMessage(c *loop.Conn, msg []byte) error {
	h.log.message(c, msg)
	return h.Handler.OnMessage(c, msg)
}

// Unwrap lets loop.HandlerAs look through.
func (h *logged) Unwrap() any { return h.Handler }
