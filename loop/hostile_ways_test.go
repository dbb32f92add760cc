package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// Errors are user code: each of their methods may panic.
type (
	badError  struct{}
	badIs     struct{}
	badUnwrap struct{}
	badAs     struct{}
)

func (badError) Error() string  { panic("Error") }
func (badIs) Error() string     { return "bad" }
func (badIs) Is(error) bool     { panic("Is") }
func (badUnwrap) Error() string { return "bad" }
func (badUnwrap) Unwrap() error { panic("Unwrap") }
func (badAs) Error() string     { return "bad" }
func (badAs) As(any) bool       { panic("As") }
func hostileErrors() map[string]error {
	var none *net.OpError
	return map[string]error{
		"a typed nil": none, "Error": badError{}, "Is": badIs{}, "Unwrap": badUnwrap{}, "As": badAs{},
		"wrapped": fmt.Errorf("wrapped: %w", badIs{}), "joined": errors.Join(badUnwrap{}, badIs{}),
	}
}

// ways are how an error, or a panic with it, gets into a connection that is open.
var ways = map[string]func(c *loop.Conn, err error) error{
	"OnMessage returns it": func(_ *loop.Conn, err error) error { return err },
	"OnMessage panics":     func(_ *loop.Conn, err error) error { panic(err) },
	"CloseWithError":       func(c *loop.Conn, err error) error { c.CloseWithError(err); return nil },
	"a timer panics":       func(c *loop.Conn, err error) error { c.AfterFunc(0, func() { panic(err) }); return nil },
	"Every panics": func(c *loop.Conn, err error) error {
		c.Every(time.Millisecond, func() { panic(err) })
		return nil
	},
	"OnIdle panics": func(c *loop.Conn, err error) error {
		c.OnIdle(loop.IdleRead, time.Millisecond, func(int) { panic(err) })
		return nil
	},
	"Tell panics":  func(c *loop.Conn, err error) error { return c.Ref().Tell(func(*loop.Conn) { panic(err) }) },
	"Tell closes":  func(c *loop.Conn, err error) error { return c.Ref().Tell(func(c *loop.Conn) { c.CloseWithError(err) }) },
	"high water":   func(c *loop.Conn, err error) error { c.OnHighWater(0, func() { panic(err) }); return sendMuch(c) },
	"flushed":      func(c *loop.Conn, err error) error { c.OnFlushed(func() { panic(err) }); return sendMuch(c) },
	"end of input": func(c *loop.Conn, err error) error { c.OnEOF(func() { panic(err) }); return nil },
	"AfterClose":   func(c *loop.Conn, err error) error { c.AfterClose(func(error) { panic(err) }); c.Close(); return nil },
	"a job panics": func(c *loop.Conn, err error) error {
		return loop.Offload(c, func(context.Context) int { panic(err) }, func(*loop.Conn, int) {})
	},
	"its then panics": func(c *loop.Conn, err error) error {
		return loop.Offload(c, func(context.Context) int { return 0 }, func(*loop.Conn, int) { panic(err) })
	},
	"the codec's Decode": func(c *loop.Conn, err error) error {
		c.SetCodec(badCodec{decode: func() error { return err }})
		return nil
	},
	"the codec panics in Decode": func(c *loop.Conn, err error) error {
		c.SetCodec(badCodec{decode: func() error { panic(err) }})
		return nil
	},
	"the codec's AppendFrame": func(c *loop.Conn, err error) error {
		c.SetCodec(badCodec{append: func() error { return err }})
		return c.Send([]byte("x"))
	},
	"the codec panics in AppendFrame": func(c *loop.Conn, err error) error {
		c.SetCodec(badCodec{append: func() error { panic(err) }})
		return c.Send([]byte("x"))
	},
	"the codec panics in FrameSize": func(c *loop.Conn, err error) error {
		c.SetCodec(badSizer{badCodec{size: func() { panic(err) }}})
		return nil
	},
	"the codec panics in AppendReply": func(c *loop.Conn, err error) error {
		c.SetCodec(badReply{badCodec{reply: func() { panic(err) }}})
		return nil
	},
	"the codec panics in AppendFarewell": func(c *loop.Conn, err error) error {
		c.SetCodec(badFarewell{badCodec{reply: func() { panic(err) }}})
		c.Close()
		return nil
	},
	"the codec panics in Opening": func(c *loop.Conn, err error) error {
		c.SetCodec(badOpener{badCodec{reply: func() { panic(err) }}})
		return nil
	},
	"the codec panics in Open": func(c *loop.Conn, err error) error {
		c.SetCodec(badTimeout{badCodec{reply: func() { panic(err) }}})
		return nil
	},
	"the codec panics in DecodeFrom": func(c *loop.Conn, err error) error {
		c.SetCodec(badResumer{badCodec{reply: func() { panic(err) }}})
		return nil
	},
	"a post panics":     func(c *loop.Conn, err error) error { return c.Loop().Post(func() { panic(err) }) },
	"a loop's timer":    func(c *loop.Conn, err error) error { c.Loop().AfterFunc(0, func() { panic(err) }); return nil },
	"at the loop's end": func(c *loop.Conn, err error) error { c.Loop().AfterStop(func() { panic(err) }); return nil },
	"all hooks at once": func(c *loop.Conn, err error) error {
		for _, hook := range []func(func()){c.OnFlushed, c.OnEOF, func(f func()) { c.OnHighWater(0, f) }} {
			hook(func() { panic(err) })
		}
		for _, k := range []loop.Idle{loop.IdleRead, loop.IdleWrite, loop.IdleBoth, loop.WriteStalled} {
			c.OnIdle(k, time.Millisecond, func(int) { panic(err) })
		}
		return sendMuch(c)
	},
	"a stateful codec panics in New": func(c *loop.Conn, err error) error {
		c.SetCodec(badNew{badCodec{reply: func() { panic(err) }}})
		return nil
	},
}

func sendMuch(c *loop.Conn) error { return c.Send(make([]byte, 200<<10)) }

// badCodec is codec.Raw with a function where something else is wanted.
type badCodec struct {
	codec.Raw
	decode, append func() error
	size, reply    func()
}

func (b badCodec) Decode(data []byte) (int, []byte, error) {
	if b.decode == nil {
		return b.Raw.Decode(data)
	}
	return 0, nil, b.decode()
}

func (b badCodec) AppendFrame(dst, frame []byte) ([]byte, error) {
	if b.append == nil {
		return b.Raw.AppendFrame(dst, frame)
	}
	return dst, b.append()
}

type badSizer struct{ badCodec }

// Decode wants more than there is, so that FrameSize is asked.
func (badSizer) Decode([]byte) (int, []byte, error) { return 0, nil, nil }
func (b badSizer) FrameSize([]byte) (int, bool)     { b.size(); return 0, false }

type badAssembler struct{ badCodec }

func (b badAssembler) Unfinished() (int, bool) { b.reply(); return 0, false }

type badReply struct{ badCodec }

func (b badReply) AppendReply(dst []byte) []byte { b.reply(); return dst }

type badFarewell struct{ badCodec }

func (b badFarewell) AppendFarewell(dst []byte, _ error) []byte { b.reply(); return dst }

type badOpener struct{ badCodec }

func (badOpener) Open(dst []byte, _ codec.Peer) ([]byte, time.Duration, error) {
	return dst, time.Millisecond, nil
}
func (b badOpener) Opening() error { b.reply(); return nil }
func (badOpener) Opened() error    { return nil }

type badTimeout struct{ badCodec }

func (b badTimeout) Open(dst []byte, _ codec.Peer) ([]byte, time.Duration, error) {
	b.reply()
	return dst, 0, nil
}
func (badTimeout) Opening() error { return nil }
func (badTimeout) Opened() error  { return nil }

type badResumer struct{ badCodec }

// Decode wants more, and then goes on.
func (badResumer) Decode([]byte) (int, []byte, error)            { return 0, nil, nil }
func (b badResumer) DecodeFrom([]byte, int) (int, []byte, error) { b.reply(); return 0, nil, nil }

type badNew struct{ badCodec }

func (b badNew) New() codec.Codec { b.reply(); return b }
