package handler

import (
	"errors"
	"reflect"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
)

// maxForms is how many wire forms of one message are kept; members whose codec needs another get it
// by Send.
const maxForms = 8

// An encoder gives each member the wire form of one message, made once for all members with equal
// codecs.
type encoder struct {
	msg   []byte
	buf   []byte // the forms, one behind the other
	forms []form
}

type form struct {
	key      any
	from, to int // of buf
	err      error
}

func (e *encoder) begin(msg []byte) { e.msg = msg }

// end forgets the message. A large buffer is given up, so that a loop does not keep it for good.
func (e *encoder) end() {
	clear(e.forms)
	e.msg, e.forms, e.buf = nil, e.forms[:0], e.buf[:0]
	if cap(e.buf) > maxBuffer {
		e.buf = nil
	}
}

// send sends the message to c.
func (e *encoder) send(c *loop.Conn) {
	cd := c.Codec()
	key := frameKey(cd)
	f := e.find(key)
	if f == nil {
		if key == nil || len(e.forms) == maxForms {
			warn(c, c.Send(e.msg))
			return
		}
		f = e.encode(cd, key)
		warn(c, f.err)
	}
	if f.err == nil {
		_, err := c.Write(e.buf[f.from:f.to])
		warn(c, err)
	}
}

func (e *encoder) find(key any) *form {
	if key == nil {
		return nil
	}
	for i := range e.forms {
		if e.forms[i].key == key {
			return &e.forms[i]
		}
	}
	return nil
}

func (e *encoder) encode(cd codec.Codec, key any) *form {
	from := len(e.buf)
	buf, err := cd.AppendFrame(e.buf, e.msg)
	if err == nil {
		e.buf = buf
	}
	e.forms = append(e.forms, form{key: key, from: from, to: len(e.buf), err: err})
	return &e.forms[len(e.forms)-1]
}

// frameKey returns the key under which the wire form for cd can be shared, or nil.
func frameKey(cd codec.Codec) any {
	switch cd := cd.(type) {
	case codec.Lines, codec.Length, codec.Raw: // most servers: faster than asking
		return cd
	case codec.FrameKeyer:
		return cd.FrameKey()
	case codec.Stateful:
		return nil
	}
	if reflect.ValueOf(cd).Comparable() {
		return cd
	}
	return nil
}

// warn logs why a member did not get a message, unless it is closing: then OnClose tells. What is
// said in a room may come from a peer, so it is once a second at most.
func warn(c *loop.Conn, err error) {
	if err == nil || errors.Is(err, loop.ErrClosed) || errors.Is(err, loop.ErrSlowConsumer) {
		return
	}
	if more, ok := inside.MayLog(c); ok {
		c.Log().Warn().Err(err).Int("more", more).Msg("a broadcast cannot be encoded")
	}
}
