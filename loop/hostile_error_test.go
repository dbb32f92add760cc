package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
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

type badReply struct{ badCodec }

func (b badReply) AppendReply(dst []byte) []byte { b.reply(); return dst }

type badFarewell struct{ badCodec }

func (b badFarewell) AppendFarewell(dst []byte, _ error) []byte { b.reply(); return dst }

type badNew struct{ badCodec }

func (b badNew) New() codec.Codec { b.reply(); return b }

// situations bring a connection into a state, and then have do called on its loop for it.
var situations = map[string]func(srv *looptest.Server, p *looptest.Peer, do func(c *loop.Conn)){
	"open": func(srv *looptest.Server, p *looptest.Peer, do func(c *loop.Conn)) { tell(srv, p, do) },
	"paused": func(srv *looptest.Server, p *looptest.Peer, do func(c *loop.Conn)) {
		tell(srv, p, (*loop.Conn).PauseRead)
		p.Send("held")
		tell(srv, p, do)
		p.Send("held, too")
		tell(srv, p, (*loop.Conn).ResumeRead)
	},
	"full": func(srv *looptest.Server, p *looptest.Peer, do func(c *loop.Conn)) {
		p.Block(10)
		tell(srv, p, func(c *loop.Conn) { _ = c.Send(make([]byte, 300<<10)) })
		tell(srv, p, do)
		p.Unblock()
	},
	"closing": func(srv *looptest.Server, p *looptest.Peer, do func(c *loop.Conn)) {
		p.Block(10)
		tell(srv, p, func(c *loop.Conn) {
			_ = c.Send(make([]byte, 300<<10))
			do(c)
			c.Close()
		})
		p.Unblock()
	},
	"half closed": func(srv *looptest.Server, p *looptest.Peer, do func(c *loop.Conn)) {
		tell(srv, p, func(c *loop.Conn) { c.OnEOF(func() {}) })
		p.CloseWrite()
		tell(srv, p, do)
	},
	"write ended": func(srv *looptest.Server, p *looptest.Peer, do func(c *loop.Conn)) {
		tell(srv, p, (*loop.Conn).CloseWrite)
		tell(srv, p, do)
	},
	"reset": func(srv *looptest.Server, p *looptest.Peer, do func(c *loop.Conn)) {
		tell(srv, p, do)
		p.Reset()
	},
	"drained": func(srv *looptest.Server, p *looptest.Peer, do func(c *loop.Conn)) {
		tell(srv, p, do)
		srv.Shutdown()
	},
}

// Whatever panics, in whatever state, costs its connection at most: the process lives, the others
// are served, and the counters add up.
func TestHostileErrorsAnywhere(t *testing.T) {
	for state, bring := range situations {
		for way, give := range ways {
			for name, err := range hostileErrors() {
				hostileCase(t, state+", "+way+", "+name, err, give, bring)
			}
		}
	}
}

func hostileCase(t *testing.T, name string, err error, give func(*loop.Conn, error) error,
	bring func(*looptest.Server, *looptest.Peer, func(*loop.Conn))) {
	closes := make(map[uint64]int)
	srv := &loop.Server{CloseTimeout: time.Second, Accept: func(*loop.Conn) loop.Handler {
		return script{
			Message: func(c *loop.Conn, msg []byte) error { return c.Send(msg) },
			Close:   func(c *loop.Conn, err error) { closes[c.ID()]++; panic(err) },
		}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		bring(srv, p, func(c *loop.Conn) {
			if e := give(c, err); e != nil {
				c.CloseWithError(e)
			}
		})
		p.Send("input")
		wait(100 * time.Millisecond)
		if q.Ended() && name[:7] != "drained" {
			t.Fatalf("%s: the other connection has ended: %v", name, q.Reason())
		}
		if q.Send("x"); q.Received() != "x" && !q.Closed() {
			t.Fatalf("%s: the other connection is not served", name)
		}
		p.CloseWrite()
		wait(3 * time.Second)
		_ = srv.Stop()
		st := srv.Stats()
		if st.Conns != 0 || st.Accepted != st.Closed+st.Refused || closes[1] != 1 || closes[2] != 1 {
			t.Fatalf("%s: OnClose ran %v times, %+v", name, closes, st)
		}
	})
}

// The same in Accept, where there is no connection yet.
func TestHostileErrorsInAccept(t *testing.T) {
	for name, err := range hostileErrors() {
		for way, do := range map[string]func(c *loop.Conn){
			"panics": func(*loop.Conn) { panic(err) },
			"closes": func(c *loop.Conn) { c.CloseWithError(err) },
			"hooks":  func(c *loop.Conn) { c.AfterClose(func(error) { panic(err) }); panic(err) },
		} {
			n := 0
			srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
				if n++; n == 1 {
					do(c)
				}
				return script{Message: func(c *loop.Conn, msg []byte) error { return c.Send(msg) }}
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p, q := srv.Open(), srv.Open()
				if q.Send("x"); q.Received() != "x" || !p.Closed() {
					t.Errorf("%s %s: closed: %v; the other connection is not served", way, name, p.Closed())
				}
			})
		}
	}
}

// Hooks of the Server that panic with such errors, and OnClosing, cost one connection each.
func TestHostileErrorsInServerHooks(t *testing.T) {
	for name, err := range hostileErrors() {
		srv := &loop.Server{
			OnClosing: func(*loop.Conn, error) { panic(err) },
			OnDrain:   func(*loop.Conn) { panic(err) },
			OnStop:    func(*loop.Loop) { panic(err) },
			Accept: func(c *loop.Conn) loop.Handler {
				return script{Message: func(c *loop.Conn, msg []byte) error { return err }}
			},
		}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p, q := srv.Open(), srv.Open()
			p.Send("x")
			if !p.Ended() || q.Ended() {
				t.Errorf("%s: ended: %v, the other: %v", name, p.Ended(), q.Ended())
			}
			if err := srv.Stop(); err != nil {
				t.Errorf("%s: the drain: %v", name, err)
			}
		})
	}
}
