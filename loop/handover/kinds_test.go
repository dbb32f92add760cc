//go:build unix

package handover_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// This file is what moves besides connections that were accepted at an address.

func engines() map[string]loop.Engine {
	all := map[string]loop.Engine{"default": loop.EngineDefault, "net": loop.EngineNet}
	if runtime.GOOS == "linux" {
		all["epoll"] = loop.EngineEpoll
	}
	return all
}

// A backend is who is dialed: it accepts connections, which are the test's.
type backend struct {
	t *testing.T
	net.Listener
	tls *tls.Config
}

func newBackend(t *testing.T, cfg *tls.Config) *backend {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return &backend{t, ln, cfg}
}

func (b *backend) addr() string { return "tcp://" + b.Addr().String() }

// accept returns the next connection.
func (b *backend) accept() *client {
	b.t.Helper()
	_ = b.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	nc, err := b.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	if b.tls != nil {
		nc = tls.Server(nc, b.tls)
	}
	b.t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	return &client{b.t, nc, bufio.NewReader(nc)}
}

// isQuiet fails the test if there is another connection.
func (b *backend) isQuiet() {
	b.t.Helper()
	_ = b.Listener.(*net.TCPListener).SetDeadline(time.Now().Add(30 * time.Millisecond))
	if _, err := b.Accept(); err == nil {
		b.t.Error("the backend was dialed once more")
	}
}

// Each kind of connection goes on in two more servers, with its state and half a line.
func TestKindsMove(t *testing.T) {
	cert := testkit.Certificate("localhost")
	dials := func(d loop.Dialer) func(srv *loop.Server, who, addr string) {
		return func(srv *loop.Server, who, addr string) {
			srv.OnStart = func(l *loop.Loop) {
				if l.Index() == 0 {
					d.Dial(l, addr, func(c *loop.Conn, err error) loop.Handler {
						if err != nil {
							return nil
						}
						return accept(who)(c)
					})
				}
			}
		}
	}
	for name, kind := range map[string]struct {
		tls    *tls.Config                              // of the backend
		change func(srv *loop.Server, who, addr string) // each server
		peer   func(t *testing.T, srv *loop.Server, b *backend) *client
	}{
		"dialed": {change: dials(loop.Dialer{Codec: codec.Lines{}, MoveAs: "x"})},
		"dialed, TLS": {tls: &tls.Config{Certificates: []tls.Certificate{cert}},
			change: dials(loop.Dialer{Codec: codec.Lines{}, MoveAs: "x", TLS: &tls.Config{InsecureSkipVerify: true}})},
		"a Link": {change: func(srv *loop.Server, who, addr string) {
			srv.OnStart = func(l *loop.Loop) {
				if l.Index() == 1 {
					handler.NewLink(l, handler.LinkConfig{Addr: addr, Dialer: loop.Dialer{Codec: codec.Lines{}, MoveAs: "x"}, Accept: accept(who),
						Min: time.Millisecond, Max: time.Millisecond})
				}
			}
		}},
		"adopted": {change: func(srv *loop.Server, who, _ string) {
			srv.Listeners = []loop.Listener{{Addr: "name://tunnel", Accept: accept(who)}}
		}, peer: func(t *testing.T, srv *loop.Server, _ *backend) *client {
			near, far, err := pair(t, "tcp", "127.0.0.1:0")
			if err == nil {
				err = srv.Adopt(near, nil, loop.Listener{Addr: "name://tunnel", Codec: srv.Codec, Accept: accept("a")})
			}
			if err != nil {
				t.Fatal(err)
			}
			return &client{t, far, bufio.NewReader(far)}
		}},
		"AcceptFrom": {change: func(srv *loop.Server, who, _ string) {
			srv.Listeners = []loop.Listener{{Addr: "name://tunnel", Accept: accept(who)}}
			if who == "a" {
				srv.Listeners[0].AcceptFrom, _ = net.Listen("tcp", "127.0.0.1:0")
			}
		}, peer: func(t *testing.T, srv *loop.Server, _ *backend) *client {
			nc, err := net.Dial("tcp", srv.Addrs()[1].String())
			if err != nil {
				t.Fatal(err)
			}
			_ = nc.SetDeadline(time.Now().Add(patience))
			return &client{t, nc, bufio.NewReader(nc)}
		}},
	} {
		for engine, e := range engines() {
			t.Run(name+", "+engine, func(t *testing.T) {
				path, b := filepath.Join(t.TempDir(), "s"), newBackend(t, kind.tls)
				var c *client
				for n, who := range []string{"a", "b", "c"} {
					srv := lines(who)
					srv.Engine = e
					kind.change(srv, who, b.addr())
					if r := start(t, path, srv); n > 0 && (r.Moved != 1 || len(r.Stayed) > 0) {
						t.Fatalf("%+v, want 1 moved", r)
					}
					switch {
					case n > 0:
						c.say("f\nhal")
						c.hears(fmt.Sprintf("%s %d half", who, n+1))
					case kind.peer != nil:
						c = kind.peer(t, srv, b)
					default:
						c = b.accept()
					}
					if n == 0 {
						c.say("one\nhal")
						c.hears("a 1 one")
					}
				}
				b.isQuiet()
			})
		}
	}
}

// A Dial that waits for a connection dials if none comes.
func TestDialWaits(t *testing.T) {
	path, b := filepath.Join(t.TempDir(), "s"), newBackend(t, nil)
	linked := func(who string) *loop.Server {
		srv := lines(who)
		srv.OnStart = func(l *loop.Loop) {
			if l.Index() == 0 {
				handler.NewLink(l, handler.LinkConfig{Addr: b.addr(), Dialer: loop.Dialer{Codec: codec.Lines{}, MoveAs: "x"}, Accept: accept(who),
					Min: time.Millisecond, Max: time.Millisecond})
			}
		}
		return srv
	}
	start(t, path, linked("a"))
	c := b.accept()
	c.say("one\n")
	c.hears("a 1 one")
	c.Close() // the Link dials again
	c = b.accept()
	c.say("one\n")
	c.hears("a 1 one")
	start(t, path, lines("b")) // without the Link
	if _, err := c.in.ReadByte(); err != io.EOF {
		t.Errorf("the backend reads %v, want EOF: the old process drains", err)
	}
	b.isQuiet()
	start(t, path, linked("c")) // to which no connection moves
	c = b.accept()
	c.say("one\n")
	c.hears("c 1 one")
	b.isQuiet()
}

// A relay is the handler of a client that is piped to the backend: what a proxy is.
type relay struct{ name string }

func (*relay) OnMessage(*loop.Conn, []byte) error { return nil }
func (*relay) OnClose(*loop.Conn, error)          {}
func (r *relay) Save(*loop.Conn) ([]byte, error)  { return []byte(r.name), nil }

// relays returns a server that pipes clients to the backend. ends gets what Done gets.
func relays(addr string, ends chan<- string) *loop.Server {
	srv := lines("")
	srv.Codec = nil
	srv.Accept = pipeTo(addr, func(in, out uint64, err error) { ends <- fmt.Sprint(in, out, err) })
	return srv
}

// pipeTo returns what a proxy does with its clients.
func pipeTo(addr string, done func(in, out uint64, err error)) loop.Accept {
	return func(c *loop.Conn) loop.Handler {
		r := &relay{c.RemoteAddr().String()}
		if name, moved := c.Saved(); moved {
			r.name = string(name)
		}
		c.PauseRead()
		loop.Dialer{MoveAs: r.name}.Dial(c.Loop(), addr, func(to *loop.Conn, err error) loop.Handler {
			if err != nil {
				c.CloseWithError(err)
				return nil
			}
			loop.Pipe(c, to, loop.PipeConfig{Done: done})
			c.ResumeRead()
			return r
		})
		return r
	}
}

// Both ends of a Pipe move together, with what is between, in both directions, while bytes flow.
func TestPipeMoves(t *testing.T) {
	for engine, e := range engines() {
		t.Run(engine, func(t *testing.T) {
			path, b, ends := filepath.Join(t.TempDir(), "s"), newBackend(t, nil), make(chan string, 10)
			a := relays(b.addr(), ends)
			a.Engine = e
			patient := handover.Config{Path: path, Patience: time.Second} // for output that waits all the time
			if _, err := open(t, a, patient); err != nil {
				t.Fatal(err)
			}
			near := dial(t, a)
			far := b.accept()
			stop, sent, got := make(chan struct{}), make(chan int, 2), make(chan int, 2)
			for _, c := range []*client{near, far} {
				go func() { sent <- c.sendNumbers(stop) }()
				go func() { got <- c.readNumbers() }()
			}
			for range 4 {
				time.Sleep(10 * time.Millisecond)
				next := relays(b.addr(), ends)
				next.Engine = e
				if n, err := open(t, next, patient); err != nil || n.report.Moved != 2 {
					t.Fatalf("%+v, %v, want 2 moved", n, err)
				}
				if end := testkit.Receive(t, "the end of the pipe in the old process", ends); !strings.HasSuffix(end, handover.ErrMoved.Error()) {
					t.Errorf("Done gets %s, want ErrMoved", end)
				}
			}
			close(stop)
			sum := 0
			for range 2 {
				sum += testkit.Receive(t, "the end of what is sent", sent)
			}
			for range 2 {
				sum -= testkit.Receive(t, "the end of what is read", got)
			}
			if sum != 0 {
				t.Errorf("%d bytes are missing", sum)
			}
			var in, out int
			if end := testkit.Receive(t, "the end of the pipe", ends); !strings.HasSuffix(end, " <nil>") {
				t.Errorf("Done gets %s, want no error", end)
			} else if _, err := fmt.Sscan(end, &in, &out); err != nil || in+out < 1<<20 {
				t.Errorf("Done gets %s, want all bytes", end)
			}
			b.isQuiet()
		})
	}
}

// sendNumbers sends increasing numbers, 8 bytes each, until stop is closed, and returns how many
// bytes these were. Then it ends its output.
func (c *client) sendNumbers(stop <-chan struct{}) (n int) {
	for {
		select {
		case <-stop:
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
			return n
		default:
		}
		var p []byte
		for range 1 << 10 {
			p = binary.BigEndian.AppendUint64(p, uint64(n+len(p)))
		}
		if _, err := c.Write(p); err != nil {
			c.t.Error(err)
			return n
		}
		n += len(p)
	}
}

// readNumbers reads what sendNumbers sends, to the end.
func (c *client) readNumbers() (n int) {
	for p := make([]byte, 8); ; n += len(p) {
		if _, err := io.ReadFull(c.in, p); err == io.EOF {
			return n
		} else if got := binary.BigEndian.Uint64(p); err != nil || got != uint64(n) {
			c.t.Errorf("after %d bytes it reads %d, %v", n, got, err)
			return n
		}
	}
}

// A Pipe of which one end is refused, or that is not made again, stays whole.
func TestPipeStays(t *testing.T) {
	for name, next := range map[string]func(addr string) *loop.Server{
		"no Dial": func(string) *loop.Server {
			srv := lines("")
			srv.Accept = func(*loop.Conn) loop.Handler { return &relay{} }
			return srv
		},
		"no Pipe": func(addr string) *loop.Server {
			srv := lines("")
			srv.Accept = func(c *loop.Conn) loop.Handler {
				name, _ := c.Saved()
				loop.Dialer{MoveAs: string(name)}.Dial(c.Loop(), addr, func(*loop.Conn, error) loop.Handler { return &relay{} })
				return &relay{}
			}
			return srv
		},
		"refused": func(addr string) *loop.Server {
			srv := lines("")
			srv.Accept = func(c *loop.Conn) loop.Handler {
				name, _ := c.Saved()
				loop.Dialer{MoveAs: string(name)}.Dial(c.Loop(), addr, func(*loop.Conn, error) loop.Handler { return nil })
				return &relay{}
			}
			return srv
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, b, ends := filepath.Join(t.TempDir(), "s"), newBackend(t, nil), make(chan string, 10)
			a := relays(b.addr(), ends)
			a.Drain.Delay = patience
			start(t, path, a)
			near := dial(t, a)
			far := b.accept()
			near.say("one\n")
			far.hears("one")
			if r := start(t, path, next(b.addr())); r.Moved != 0 || r.Stayed["refused"] != 2 {
				t.Errorf("%+v, want 2 refused", r)
			}
			far.say("two\n")
			near.hears("two")
			near.Close()
			if _, err := far.in.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("the backend reads %v, want EOF", err)
			}
		})
	}
}

// Sessions of UDP move with their sockets, to as many loops as the next process has, and lose no
// datagram. One that cannot move ends where it is, and may still send.
func TestUDPMoves(t *testing.T) {
	const peers = 20
	for engine, e := range engines() {
		t.Run(engine, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			var controls atomic.Int32
			server := func(who string, loops int) *loop.Server {
				srv := lines(who)
				srv.Engine, srv.NumLoops = e, loops
				srv.UDP.Control = func(string, string, syscall.RawConn) error { controls.Add(1); return nil }
				srv.Listeners = []loop.Listener{{Addr: "udp://127.0.0.1:0"}}
				return srv
			}
			a := server("a", 2)
			var stays atomic.Bool
			a.Listeners[0].Accept = func(c *loop.Conn) loop.Handler {
				if !stays.Swap(true) {
					return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { return c.Send(msg) })
				}
				return accept("a")(c)
			}
			a.Hooks.OnDrain = func(c *loop.Conn) { _ = c.Send([]byte("bye")) }
			start(t, path, a)
			dialUDP := func() *client {
				nc, err := net.Dial("udp", a.Addrs()[1].String())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { nc.Close() })
				_ = nc.SetDeadline(time.Now().Add(patience))
				return &client{t: t, Conn: nc}
			}
			left := dialUDP()
			left.asks("x", "x")
			stop := make(chan struct{})
			var talking, begun sync.WaitGroup
			for range peers {
				begun.Add(1)
				talking.Go(func() {
					c := dialUDP()
					for n := 1; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						if msg := fmt.Sprint(n); !c.asks(msg, fmt.Sprint(" ", n, " ", n)) {
							return
						}
						if n == 1 {
							begun.Done()
						}
					}
				})
			}
			begun.Wait()
			for n, loops := range []int{1, 3, 2} {
				who := string(rune('b' + n))
				controls.Store(0)
				r := start(t, path, server(who, loops))
				if controls.Load() == 0 {
					t.Error("UDP.Control of the next version is not called")
				}
				if r.Stayed["no Save"] != max(0, 1-n) || r.Moved != peers+min(n, 1) {
					t.Errorf("%+v, want %d moved, and at first one without Save", r, peers)
				}
				if n == 0 {
					left.reads("bye")
					left.asks("x", who+" 1 x") // which the next process has accepted
					_ = left.Close()
				}
				time.Sleep(5 * time.Millisecond)
			}
			close(stop)
			talking.Wait()
		})
	}
}

// asks sends a datagram, and reads the answer, which ends as given.
func (c *client) asks(msg, want string) bool {
	if _, err := c.Write([]byte(msg)); err != nil {
		c.t.Error(err)
		return false
	}
	return c.reads(want)
}

func (c *client) reads(want string) bool {
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if got := string(buf[:n]); err != nil || !strings.HasSuffix(got, want) {
		c.t.Errorf("a datagram reads %q, %v, want %q", got, err, want)
		return false
	}
	return true
}

// Two clients that are piped to each other arrive on one loop, where the second finds the first.
func TestPipeOfClientsMoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	pairs := func(loops int) *loop.Server {
		waiting := loop.NewLocal(func(*loop.Loop) *loop.Conn { return nil })
		srv := lines("")
		srv.Codec, srv.NumLoops = nil, loops
		srv.Accept = func(c *loop.Conn) loop.Handler {
			if first := waiting.Get(c.Loop()); *first == nil {
				*first = c
			} else {
				loop.Pipe(*first, c, loop.PipeConfig{})
				*first = nil
			}
			return &relay{}
		}
		return srv
	}
	a := pairs(1)
	start(t, path, a)
	var clients []*client
	for range 10 {
		clients = append(clients, dial(t, a))
		testkit.Eventually(t, "it is accepted", func() bool { return a.Stats().Conns == len(clients) })
	}
	for n, loops := range []int{3, 1, 2} {
		if r := start(t, path, pairs(loops)); r.Moved != len(clients) {
			t.Fatalf("%+v, want %d moved", r, len(clients))
		}
		for i, c := range clients {
			c.say(fmt.Sprintln(n, i))
			clients[i^1].hears(fmt.Sprint(n, i))
		}
	}
}
