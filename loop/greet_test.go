package loop_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

var errUnwelcome = fmt.Errorf("%w: unwelcome", codec.ErrEnd)

// greeter is lines after a handshake: it says "hello", and the first line must be "welcome".
type greeter struct {
	lines   codec.Lines
	greet   func() error // nil: it greets
	timeout time.Duration
	secret  bool         // it greets only over TLS
	handed  func() error // nil: it does not care
	done    bool
	replies string
}

func (g *greeter) New() codec.Codec {
	n := *g
	return &n
}

func (g *greeter) Open(dst []byte, peer codec.Peer) ([]byte, time.Duration, error) {
	if g.greet != nil {
		return append(dst, "hel"...), g.timeout, g.greet()
	}
	if g.secret && peer.TLS == nil {
		return dst, g.timeout, errors.New("not over plain TCP")
	}
	return append(dst, "hello\n"...), g.timeout, nil
}

func (g *greeter) Decode(data []byte) (int, []byte, error) {
	n, line, err := g.lines.Decode(data)
	if g.done || line == nil || err != nil {
		return n, line, err
	}
	switch string(line) {
	case "welcome":
		g.done, g.replies = true, "thanks\n"
		return n, nil, nil
	case "a message":
		return n, line, nil
	}
	return n, nil, errUnwelcome
}

func (g *greeter) AppendFrame(dst, frame []byte) ([]byte, error) {
	return g.lines.AppendFrame(dst, frame)
}

func (g *greeter) AppendReply(dst []byte) []byte {
	dst = append(dst, g.replies...)
	g.replies = ""
	return dst
}

func (g *greeter) Opening() error {
	if g.done {
		return nil
	}
	return errors.New("no welcome")
}

func (g *greeter) Opened() error {
	if g.handed == nil {
		return nil
	}
	return g.handed()
}

// What a codec has to say first comes before what Accept sends, and where it becomes the codec of a
// connection that runs, before what is sent from then on.
func TestCodecGreets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1, Codec: &greeter{},
			Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}}},
			Accept: func(c *loop.Conn) loop.Handler {
				_ = c.Send([]byte("accepted"))
				return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
					c.SetCodec(&greeter{})
					return c.Send([]byte("changed"))
				})
			},
		})
		p, q := srv.OpenTo(0), srv.OpenTo(1)
		if got := p.Received(); got != "hello\naccepted\n" {
			t.Errorf("received %q", got)
		}
		q.Send("change\n", "welcome\n")
		if got := q.Received(); got != "accepted\nhello\nchanged\nthanks\n" {
			t.Errorf("received %q", got)
		}
	})
}

// A greeting that is refused by the codec itself, or that panics, closes the connection, and Accept
// has seen it.
func TestCodecGreetsNot(t *testing.T) {
	errNo := errors.New("no")
	for name, greet := range map[string]func() error{
		"an error": func() error { return errNo },
		"a panic":  func() error { panic("in Open") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				accepted := 0
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &greeter{greet: greet}, Accept: func(c *loop.Conn) loop.Handler {
					accepted++
					if err := c.Send([]byte("x")); err != loop.ErrClosed {
						t.Errorf("Send: %v", err)
					}
					return loop.HandlerFunc(echo)
				}})
				p := srv.Open()
				_, panicked := errors.AsType[*loop.PanicError](p.Reason())
				if !errors.Is(p.Reason(), errNo) && !panicked || accepted != 1 || p.Received() != "" {
					t.Errorf("closed with %v, accepted %d", p.Reason(), accepted)
				}
			})
		})
	}
}

// courteous is a greeter with last words.
type courteous struct{ greeter }

func (k *courteous) New() codec.Codec {
	n := *k
	return &n
}

func (*courteous) AppendFarewell(dst []byte, _ error) []byte { return append(dst, "farewell\n"...) }

// If Open fails, neither OnClosing nor the codec's farewell sends anything. Output of an earlier codec
// is still sent.
func TestCodecThatCannotOpenIsMute(t *testing.T) {
	errNo := errors.New("no")
	for name, open := range map[string]func() error{
		"an error": func() error { return errNo },
		"a panic":  func() error { panic("in Open") },
	} {
		for kind, cd := range map[string]codec.Codec{
			"alone":    &courteous{greeter{greet: open}},
			"as Inner": codec.Stack{Outer: &courteous{}, Inner: &courteous{greeter{greet: open}}},
			"as Outer": codec.Stack{Outer: &courteous{greeter{greet: open}}, Inner: &courteous{}},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := looptest.Start(t, &loop.Server{
						NumLoops: 1, Codec: cd, Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{}}},
						Accept: func(*loop.Conn) loop.Handler {
							return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
								_ = c.Send([]byte("before"))
								c.SetCodec(cd)
								return nil
							})
						},
						Hooks: loop.Hooks{OnClosing: func(c *loop.Conn, _ error) { _, _ = c.Write([]byte("last message\n")) }},
					})
					p, q := srv.OpenTo(0), srv.OpenTo(1)
					q.Send("change\n")
					var dialed error
					backend := srv.Backend("tcp", "backend:1")
					loop.Dialer{Codec: cd}.Dial(srv.Loops()[0], "tcp://backend:1", func(_ *loop.Conn, err error) loop.Handler {
						dialed = err
						return nil
					})
					r := backend.Accept()
					srv.Sleep(time.Second)
					for _, got := range []struct {
						where, got, want string
						ended            bool
						err              error
					}{
						{"accepted", p.Received(), "", p.Ended(), p.Reason()},
						{"changed", q.Received(), "before\n", q.Ended(), q.Reason()},
						{"dialed", r.Received(), "", r.Closed(), dialed},
					} {
						_, panicked := errors.AsType[*loop.PanicError](got.err)
						if got.got != got.want || !got.ended || !errors.Is(got.err, errNo) && !panicked {
							t.Errorf("%s: received %q, want %q; ended %v with %v", got.where, got.got, got.want, got.ended, got.err)
						}
					}
				})
			})
		}
	}
}

// Nobody is greeted on a connection whose output has ended, or will.
func TestCodecGreetsNobody(t *testing.T) {
	for name, end := range map[string]func(c *loop.Conn){
		"after Close":      (*loop.Conn).Close,
		"after CloseWrite": (*loop.Conn).CloseWrite,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				greeted := func() error { t.Error("greeted"); return nil }
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
					c.AfterClose(func(error) { c.SetCodec(&greeter{greet: greeted}) })
					return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
						_ = c.Send(line)
						end(c)
						c.SetCodec(&greeter{greet: greeted})
						return nil
					})
				}})
				p := srv.Open()
				p.Send("bye\n")
				if p.Close(); p.Received() != "bye\n" || !p.Ended() {
					t.Errorf("received %q, ended %t", p.Received(), p.Ended())
				}
			})
		})
	}
}

// A codec whose first words are the user's may have that send something, too.
func TestCodecSendsWhileItGreets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
				_ = c.Send([]byte("one"))
				c.SetCodec(&asking{func() { _ = c.Send([]byte("two")) }, codec.Lines{}})
				return c.Send([]byte("three"))
			})
		}})
		p := srv.Open()
		p.Send("go\n")
		if got := p.Received(); got != "one\ntwo\nhello\nthree\n" {
			t.Errorf("received %q", got)
		}
	})
}

// asking is lines after a greeting for which it asks somebody.
type asking struct {
	ask func()
	codec.Lines
}

func (a *asking) Open(dst []byte, _ codec.Peer) ([]byte, time.Duration, error) {
	dst = append(dst, "hel"...)
	a.ask()
	return append(dst, "lo\n"...), 0, nil
}

func (*asking) Opening() error { return nil }
func (*asking) Opened() error  { return nil }

// The time of a greeting does not count for a connection that has another codec by then.
func TestSetCodecEndsGreeting(t *testing.T) {
	for name, change := range map[string]func(c *loop.Conn){
		"in Accept": func(c *loop.Conn) { c.SetCodec(codec.Lines{}) },
		"later":     func(c *loop.Conn) { c.AfterFunc(time.Second, func() { c.SetCodec(codec.Lines{}) }) },
		"Pipe": func(c *loop.Conn) {
			loop.Dialer{}.Dial(c.Loop(), "tcp://b:1", func(b *loop.Conn, err error) loop.Handler {
				loop.Pipe(c, b, loop.PipeConfig{})
				return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: &greeter{timeout: 10 * time.Second}, Accept: func(c *loop.Conn) loop.Handler {
					change(c)
					return loop.HandlerFunc(func(c *loop.Conn, m []byte) error { return nil })
				}})
				if name == "Pipe" {
					b := srv.Backend("tcp", "b:1")
					defer func() { b.Accept().Close() }()
				}
				p := srv.Open()
				srv.Sleep(time.Hour)
				if p.Closed() {
					t.Errorf("it was closed with %v", p.Reason())
				}
			})
		})
	}
}
