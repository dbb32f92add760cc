package loop_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// greeted is what came of dialing with a greeter.
type greeted struct {
	srv     *looptest.Server
	backend *looptest.Backend
	opens   []error // what open was given
	conn    *loop.Conn
	log     []string
	cancel  func()
}

func (g *greeted) OnMessage(_ *loop.Conn, msg []byte) error {
	g.log = append(g.log, string(msg))
	return nil
}

func (g *greeted) OnClose(_ *loop.Conn, err error) {
	g.log = append(g.log, fmt.Sprint("closed: ", err))
}

// dialGreeter dials a backend; inOpen is what the open function does with the connection.
func dialGreeter(t *testing.T, d loop.Dialer, inOpen func(c *loop.Conn, g *greeted) loop.Handler) *greeted {
	g := new(greeted)
	g.srv = looptest.Start(t, &loop.Server{
		NumLoops: 1, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
		Hooks: loop.Hooks{OnClosing: func(c *loop.Conn, _ error) { g.log = append(g.log, "last words") }},
	})
	g.backend = g.srv.Backend("tcp", "backend:1")
	if d.Codec == nil {
		d.Codec = &greeter{}
	}
	g.cancel = d.Dial(g.srv.Loops()[0], "tcp://backend:1", func(c *loop.Conn, err error) loop.Handler {
		if g.opens = append(g.opens, err); err != nil {
			return nil
		}
		g.conn = c
		if inOpen == nil {
			return g
		}
		return inOpen(c, g)
	})
	return g
}

// panicking is a codec whose method at panics.
type panicking struct {
	greeter
	at string
}

func (p *panicking) panicIn(method string) {
	if p.at == method {
		panic("in " + method)
	}
}

func (p *panicking) Validate() error  { p.panicIn("Validate"); return nil }
func (p *panicking) New() codec.Codec { p.panicIn("New"); return p }
func (p *panicking) Opening() error   { p.panicIn("Opening"); return p.greeter.Opening() }

// A panic of the codec fails the dial at once, and open is called once.
func TestDialWithACodecThatPanics(t *testing.T) {
	for want, cd := range map[string]codec.Codec{
		"Dialer.Codec holds a nil *loop_test.panicking": (*panicking)(nil),
		"panic: in Validate":                            &panicking{at: "Validate"},
		"panic: in New":                                 &panicking{at: "New"},
		"panic: in Opening":                             &panicking{at: "Opening"},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := dialGreeter(t, loop.Dialer{Codec: cd}, nil)
				wait(time.Second)
				if len(g.opens) != 1 || g.opens[0] == nil || !strings.Contains(g.opens[0].Error(), want) {
					t.Errorf("open was called with %v, want one error with %q", g.opens, want)
				}
			})
		})
	}
}

// numConns returns how many connections Loop.Conns yields.
func (g *greeted) numConns() (n int) {
	g.srv.Do(0, func(l *loop.Loop) {
		for range l.Conns() {
			n++
		}
	})
	return n
}

// A Dialer gets the connection when the handshake of the codec is done, however its bytes arrive,
// and before any later input.
func TestDialWaitsForHandshake(t *testing.T) {
	for name, pieces := range map[string][]string{
		"at once":      {"welcome\nfirst\nsecond\n"},
		"by itself":    {"welcome\n", "first\nsecond\n"},
		"byte by byte": strings.Split("welcome\nfirst\nsecond\n", ""),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := dialGreeter(t, loop.Dialer{}, func(c *loop.Conn, g *greeted) loop.Handler {
					if _, ok := loop.HandlerAs[loop.Handler](c); ok {
						t.Error("it has a handler before open has returned one")
					}
					_ = c.Send([]byte("opened"))
					return g
				})
				p := g.backend.Accept()
				g.srv.Sleep(9 * time.Second)
				if got := p.Received(); got != "hello\n" || len(g.opens) > 0 || g.numConns() != 0 {
					t.Fatalf("received %q, opened %d, %d connections", got, len(g.opens), g.numConns())
				}
				p.Send(pieces...)
				g.srv.Sleep(time.Minute) // the time to dial is over long ago
				if got := p.Received(); got != "thanks\nopened\n" || len(g.opens) != 1 || g.numConns() != 1 {
					t.Errorf("received %q, opened %v, %d connections", got, g.opens, g.numConns())
				}
				if got := fmt.Sprint(g.log); got != "[first second]" {
					t.Errorf("log %s", got)
				}
				g.srv.Do(0, func(*loop.Loop) {
					if h, ok := loop.HandlerAs[*greeted](g.conn); !ok || h != g {
						t.Error("the handler is not the one that open has returned")
					}
				})
				p.Close()
				if got := fmt.Sprint(g.log); !strings.HasSuffix(got, " closed: EOF]") {
					t.Errorf("log %s", got)
				}
			})
		})
	}
}

// The error that ends the handshake goes to the dialer, once, and to nobody else.
func TestDialHandshakeFails(t *testing.T) {
	for name, tc := range map[string]struct {
		dialer loop.Dialer
		end    func(g *greeted, p *looptest.Peer)
		want   error
	}{
		"the peer says no":             {loop.Dialer{}, func(_ *greeted, p *looptest.Peer) { p.Send("go away\n") }, errUnwelcome},
		"the peer closes":              {loop.Dialer{}, func(_ *greeted, p *looptest.Peer) { p.Close() }, io.EOF},
		"the peer says half and ends":  {loop.Dialer{}, func(_ *greeted, p *looptest.Peer) { p.Send("wel"); p.CloseWrite() }, io.EOF},
		"the codec delivers too early": {loop.Dialer{}, func(_ *greeted, p *looptest.Peer) { p.Send("a message\n") }, codec.ErrContract},
		"the time of the Dialer":       {loop.Dialer{Timeout: time.Second}, func(g *greeted, _ *looptest.Peer) { g.srv.Sleep(time.Second) }, os.ErrDeadlineExceeded},
		"its default":                  {loop.Dialer{}, func(g *greeted, _ *looptest.Peer) { g.srv.Sleep(10 * time.Second) }, os.ErrDeadlineExceeded},
		"the idle timeout":             {loop.Dialer{IdleTimeout: time.Second}, func(g *greeted, _ *looptest.Peer) { g.srv.Sleep(time.Second) }, loop.ErrIdle},
		"the drain":                    {loop.Dialer{}, func(g *greeted, _ *looptest.Peer) { g.srv.Shutdown() }, loop.ErrServerClosed},
		"the codec cannot greet":       {loop.Dialer{Codec: &greeter{greet: func() error { return errUnwelcome }}}, nil, errUnwelcome},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := dialGreeter(t, tc.dialer, nil)
				p := g.backend.Accept()
				if tc.end != nil {
					tc.end(g, p)
				}
				if len(g.opens) != 1 || !errors.Is(g.opens[0], tc.want) || len(g.log) > 0 {
					t.Fatalf("open got %v, want %v; log %v", g.opens, tc.want, g.log)
				}
				if g.srv.Sleep(10 * time.Second); g.srv.Stats().Conns != 0 || len(g.opens) != 1 || !p.Closed() {
					t.Errorf("%d connections, opened %d times, closed %t", g.srv.Stats().Conns, len(g.opens), p.Closed())
				}
			})
		})
	}
}

// A panic of the codec is reported as well.
func TestDialHandshakePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := dialGreeter(t, loop.Dialer{Codec: &greeter{greet: func() error { panic("in Open") }}}, nil)
		g.backend.Accept()
		var e *loop.PanicError
		if len(g.opens) != 1 || !errors.As(g.opens[0], &e) || e.Value != "in Open" {
			t.Errorf("open got %v", g.opens)
		}
	})
}

// The codec's own time is shorter than the Dialer's.
func TestDialHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := dialGreeter(t, loop.Dialer{Codec: &greeter{timeout: time.Second}}, nil)
		g.backend.Accept()
		g.srv.Sleep(time.Second)
		if len(g.opens) != 1 || !strings.Contains(fmt.Sprint(g.opens[0]), "dial tcp backend:1: no welcome") {
			t.Errorf("open got %v", g.opens)
		}
	})
}

// cancel ends the handshake as it ends all before, and open is not called.
func TestDialHandshakeCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := dialGreeter(t, loop.Dialer{}, nil)
		p := g.backend.Accept()
		g.cancel()
		if synctest.Wait(); !p.Closed() || len(g.opens) > 0 {
			t.Errorf("closed %t, opened %v", p.Closed(), g.opens)
		}
		p.Send("welcome\n")
		if g.srv.Sleep(time.Minute); len(g.opens) > 0 || len(g.log) > 0 || g.srv.Stats().Conns != 0 {
			t.Errorf("opened %v, log %v, %d connections", g.opens, g.log, g.srv.Stats().Conns)
		}
	})
}

// A cancel that was made before the last byte of the handshake is decoded, and whose own turn comes
// after it.
func TestDialHandshakeCanceledLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := dialGreeter(t, loop.Dialer{}, nil)
		p := g.backend.Accept()
		resume := g.srv.Stall(0)
		p.Send("welcome\n")
		g.cancel()
		resume()
		if g.srv.Sleep(time.Minute); len(g.opens) > 0 || g.srv.Stats().Conns != 0 || !p.Closed() {
			t.Errorf("opened %v, %d connections, closed %t", g.opens, g.srv.Stats().Conns, p.Closed())
		}
	})
}

// What open may do with a connection from Accept it may do here, too.
func TestDialHandshakeThenOpen(t *testing.T) {
	type result = func(c *loop.Conn, g *greeted) loop.Handler
	for name, tc := range map[string]struct {
		open result
		log  string
	}{
		"refuses":      {func(*loop.Conn, *greeted) loop.Handler { return nil }, "[after: <nil>]"},
		"panics":       {func(*loop.Conn, *greeted) loop.Handler { panic("in open") }, "[after: <nil>]"},
		"nil func":     {func(*loop.Conn, *greeted) loop.Handler { return loop.HandlerFunc(nil) }, "[after: <nil>]"},
		"closes":       {func(c *loop.Conn, g *greeted) loop.Handler { c.CloseWithError(errUnwelcome); return g }, "[last words closed: " + errUnwelcome.Error() + " after: " + errUnwelcome.Error() + "]"},
		"closes twice": {func(c *loop.Conn, g *greeted) loop.Handler { c.Close(); return nil }, "[after: <nil>]"},
		"pauses": {func(c *loop.Conn, g *greeted) loop.Handler {
			c.PauseRead()
			c.AfterFunc(time.Second, c.ResumeRead)
			return g
		}, "[first]"},
		"changes codec": {func(c *loop.Conn, g *greeted) loop.Handler { c.SetCodec(codec.Delimiter{Delim: "s"}); return g }, "[fir]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := dialGreeter(t, loop.Dialer{}, func(c *loop.Conn, g *greeted) loop.Handler {
					c.AfterClose(func(err error) { g.log = append(g.log, fmt.Sprint("after: ", err)) })
					return tc.open(c, g)
				})
				p := g.backend.Accept()
				p.Send("welcome\nfirst\n")
				g.srv.Sleep(time.Minute)
				if got := fmt.Sprint(g.log); got != tc.log {
					t.Errorf("log %s, want %s", got, tc.log)
				}
				if open := !strings.Contains(tc.log, "after"); g.srv.Stats().Conns == 1 != open || p.Closed() == open {
					t.Errorf("%d connections, closed %t", g.srv.Stats().Conns, p.Closed())
				}
			})
		})
	}
}

// A pipe that begins in open has all that comes after the handshake.
func TestDialHandshakeThenPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var side *loop.Conn
		g := dialGreeter(t, loop.Dialer{}, func(c *loop.Conn, g *greeted) loop.Handler {
			loop.Pipe(c, side, loop.PipeConfig{})
			return g
		})
		q := g.srv.Open()
		g.srv.Do(0, func(l *loop.Loop) {
			for c := range l.Conns() {
				side = c
			}
		})
		p := g.backend.Accept()
		p.Send("welcome\nno line")
		q.Send("back")
		if got, back := q.Received(), p.Received(); got != "no line" || back != "hello\nthanks\nback" {
			t.Errorf("received %q and %q", got, back)
		}
	})
}

// The codec learns whether the connection is encrypted.
func TestCodecGreetsOverTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := dialGreeter(t, loop.Dialer{Codec: &greeter{secret: true}}, nil)
		p := g.backend.Accept()
		if got := p.Received(); got != "" || len(g.opens) != 1 || !strings.HasSuffix(fmt.Sprint(g.opens[0]), "not over plain TCP") {
			t.Errorf("received %q, open got %v", got, g.opens)
		}
	})
}

// The codec hears when the user has the connection, and before there is a message; what it finds
// fault with closes that.
func TestDialOpened(t *testing.T) {
	for name, tc := range map[string]struct {
		handed func() error
		log    string
	}{
		"right":   {func() error { return nil }, "[open handed first]"},
		"a fault": {func() error { return errUnwelcome }, "[open handed last words closed: " + errUnwelcome.Error() + "]"},
		"a panic": {func() error { panic("in Opened") }, "[open handed last words closed: loop: panic: in Opened]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g *greeted
				cd := &greeter{handed: func() error { g.log = append(g.log, "handed"); return tc.handed() }}
				g = dialGreeter(t, loop.Dialer{Codec: cd}, func(_ *loop.Conn, g *greeted) loop.Handler {
					g.log = append(g.log, "open")
					return g
				})
				p := g.backend.Accept()
				if p.Send("wel", "come\nfirst\n"); fmt.Sprint(g.log) != tc.log {
					t.Errorf("log %v, want %s", g.log, tc.log)
				}
				if open := name == "right"; p.Closed() == open {
					t.Errorf("closed %t", p.Closed())
				}
			})
		})
	}
}

// It does not hear of it if nobody has dialed, nor if the user did not want the connection, or
// wants it with another codec.
func TestDialNotOpened(t *testing.T) {
	handed := func() error { return errors.New("handed over") }
	for name, open := range map[string]func(c *loop.Conn, g *greeted) loop.Handler{
		"refused":      func(*loop.Conn, *greeted) loop.Handler { return nil },
		"closed":       func(c *loop.Conn, g *greeted) loop.Handler { c.Close(); return g },
		"another":      func(c *loop.Conn, g *greeted) loop.Handler { c.SetCodec(codec.Lines{}); return g },
		"another one":  func(c *loop.Conn, g *greeted) loop.Handler { c.SetCodec(&greeter{handed: handed}); return g },
		"nobody dials": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := loop.Dialer{Codec: &greeter{handed: handed}}
				if open == nil {
					d.Codec = codec.Lines{}
					open = func(c *loop.Conn, g *greeted) loop.Handler { c.SetCodec(&greeter{handed: handed}); return g }
				}
				g := dialGreeter(t, d, open)
				p := g.backend.Accept()
				p.Send("welcome\nwelcome\n")
				g.srv.Sleep(time.Minute)
				if strings.Contains(fmt.Sprint(g.log), "handed over") {
					t.Errorf("log %v", g.log)
				}
			})
		})
	}
}

// SetHandler in a Dialer's open function would be overwritten by its result, also when that has
// waited for a handshake.
func TestSetHandlerInOpen(t *testing.T) {
	for name, cd := range map[string]codec.Codec{"no handshake": codec.Lines{}, "handshake": &greeter{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said any
				g := dialGreeter(t, loop.Dialer{Codec: cd}, func(c *loop.Conn, g *greeted) loop.Handler {
					defer func() { said = recover() }()
					c.SetHandler(g)
					return g
				})
				g.backend.Accept().Send("welcome\n")
				if !strings.Contains(fmt.Sprint(said), "open function") {
					t.Errorf("SetHandler panicked with %v", said)
				}
			})
		})
	}
}
