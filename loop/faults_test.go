package loop_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Accept of a server of Listeners only is theirs.
func TestListenersWithoutAddr(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hello := func(c *loop.Conn) loop.Handler { _ = c.Send([]byte("hello")); c.Close(); return script{} }
	for name, srv := range map[string]*loop.Server{
		"each with Accept": {Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Accept: hello}}},
		"the server's":     {Accept: hello, Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0"}}},
		"from outside":     {Accept: hello, Listeners: []loop.Listener{{AcceptFrom: ln}}},
	} {
		t.Run(name, func(t *testing.T) {
			startWith(t, t.Context(), srv)
			if len(srv.Addrs()) != 1 || srv.LocalAddr() != srv.Addrs()[0] {
				t.Fatalf("the addresses are %v, the first of them %v; want one", srv.Addrs(), srv.LocalAddr())
			}
			c, err := net.Dial("tcp", srv.Addrs()[0].String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got, err := io.ReadAll(c); string(got) != "hello" || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	for want, srv := range map[string]*loop.Server{
		"Server.TLS":                        {TLS: &tls.Config{}, Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Accept: silent}}},
		"Server.Listeners[0].Accept is nil": {Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0"}}},
	} {
		if err := srv.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	for _, srv := range []*loop.Server{
		{Codec: codec.Lines{}, Accept: silent}, // which adopts, with the server's fields
		{},                                     // which dials
	} {
		startWith(t, t.Context(), srv)
	}
}

// HoldBackAt follows MaxOutbound, and does not reach it.
func TestHoldBackAtIsBelowMaxOutbound(t *testing.T) {
	for _, c := range []struct {
		maxOutbound, holdBackAt, want int
		ok                            bool
	}{
		{0, 0, 256 << 10, true},
		{128 << 10, 0, 32 << 10, true},
		{1 << 30, 0, 256 << 10, true},
		{1, 0, 1, true},
		{128 << 10, 127 << 10, 127 << 10, true},
		{128 << 10, 128 << 10, 0, false},
		{0, 2 << 20, 0, false},
	} {
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: silent, Limits: loop.Limits{MaxOutbound: c.maxOutbound, HoldBackAt: c.holdBackAt}}
		over, end := context.WithCancel(context.Background())
		end()
		err := srv.Run(over)
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "Server.Limits.HoldBackAt") {
			t.Errorf("%+v: %v", c, err)
		}
		if c.ok && srv.Limits.HoldBackAt != c.want {
			t.Errorf("%+v: HoldBackAt is %d", c, srv.Limits.HoldBackAt)
		}
	}
}

// So a peer that asks for much at once and reads late is held back, whatever MaxOutbound is.
func TestSmallMaxOutboundHoldsBack(t *testing.T) {
	answer := []byte(strings.Repeat("x", 1000))
	srv := &loop.Server{Limits: loop.Limits{MaxOutbound: 16 << 10}, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return c.Send(answer) })
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		const asked = 1000
		p.Send(strings.Repeat("?\n", asked))
		wait(time.Second)
		p.Unblock()
		wait(time.Second)
		if got := len(p.Received()); got != asked*(len(answer)+1) || p.Closed() {
			t.Errorf("%d bytes of answers, want %d; closed for %v", got, asked*(len(answer)+1), p.Reason())
		}
	})
}

// What the server has no room for is no fault of the peer's.
func TestOverloadIsNotTheInput(t *testing.T) {
	full := map[string]error{"offload": loop.ErrOffloadFull, "mail": loop.ErrMailboxFull}
	srv := &loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
			return errors.Join(errors.New("sorry"), full[string(msg)])
		})
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for name, want := range full {
			p := srv.Open()
			p.Send(name + "\n")
			if !errors.Is(p.Reason(), want) {
				t.Errorf("%s: closed for %v, want %v", name, p.Reason(), want)
			}
		}
		srv.Open().Send("other\n")
		by := srv.Stats().ClosedBy
		if by["overload"] != 2 || by["input"] != 1 {
			t.Errorf("closed by reason: %v, want 2 for overload and 1 for input", by)
		}
	})
}

// stuffed is a codec with much state.
type stuffed struct {
	codec.Lines
	state *[1 << 20]byte
}

func (s *stuffed) New() codec.Codec { return &stuffed{state: new([1 << 20]byte)} }

// A Ref of a closed connection keeps nothing of it that is large, however it has ended.
func TestRefKeepsNothing(t *testing.T) {
	ends := map[string]func(srv *looptest.Server, p *looptest.Peer){
		"peer":  func(_ *looptest.Server, p *looptest.Peer) { p.Close() },
		"reset": func(_ *looptest.Server, p *looptest.Peer) { p.Reset() },
		"paused": func(srv *looptest.Server, p *looptest.Peer) {
			tell(srv, p, func(c *loop.Conn) { c.PauseRead() })
			p.Send("kept\n")
			p.Reset()
		},
		"close": func(srv *looptest.Server, p *looptest.Peer) { tell(srv, p, (*loop.Conn).Close) },
		"cut": func(srv *looptest.Server, p *looptest.Peer) {
			p.Block(0)
			tell(srv, p, func(c *loop.Conn) { _ = c.Send(make([]byte, 100_000)); c.Close() })
			wait(time.Minute)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			kept := make(map[string]weak.Pointer[[1 << 20]byte])
			large := func(what string) *[1 << 20]byte {
				p := new([1 << 20]byte)
				kept[what] = weak.Make(p)
				return p
			}
			var ref loop.Ref
			var conn *loop.Conn
			srv := &loop.Server{Codec: &stuffed{}, Timeouts: loop.Timeouts{Frame: time.Minute}}
			srv.Accept = func(c *loop.Conn) loop.Handler {
				if ref != (loop.Ref{}) {
					return script{}
				}
				ref, conn = c.Ref(), c
				hooks, handler := large("hooks"), large("handler")
				kept["codec"] = weak.Make(c.Codec().(*stuffed).state)
				use := func() { hooks[0]++ }
				c.OnIdle(loop.IdleRead, time.Minute, func(int) { use() })
				c.OnIdle(loop.WriteStalled, time.Minute, func(int) { use() })
				c.AfterFunc(time.Hour, use)
				c.OnFlushed(use)
				c.OnHighWater(10, use)
				c.OnEOF(use)
				c.AfterClose(func(error) { use() })
				return script{
					Message: func(*loop.Conn, []byte) error { handler[0]++; return nil },
					Close:   func(c *loop.Conn, _ error) { handler[0]++; _ = c.Codec().(*stuffed).state[0] },
				}
			}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Send("a line\nand a half")
				if end(srv, p); name == "peer" {
					tell(srv, p, (*loop.Conn).Close) // OnEOF has kept it open
				}
				if !p.Closed() {
					t.Fatal("it is open")
				}
				srv.Do(conn.Loop().Index(), func(*loop.Loop) { // what is set too late is not kept
					late := large("hooks set late")
					use := func() { late[0]++ }
					conn.OnIdle(loop.IdleRead, time.Minute, func(int) { use() })
					conn.AfterFunc(time.Hour, use)
					conn.OnFlushed(use)
					conn.OnHighWater(10, use)
					conn.OnEOF(use)
					conn.WhenPending(0, use)
					conn.SetCodec(&stuffed{state: large("codec set late")})
				})
				srv.Open().Send("x\n") // from now on the loop has another connection in hand
				runtime.GC()
				runtime.GC()
				for what, w := range kept {
					if w.Value() != nil {
						t.Errorf("the Ref keeps the %s", what)
					}
				}
				tell(srv, p, func(c *loop.Conn) { t.Error("it is listed") })
				if err := ref.Tell(func(*loop.Conn) {}); !errors.Is(err, loop.ErrClosed) {
					t.Errorf("Tell: %v", err)
				}
			})
		})
	}
}
