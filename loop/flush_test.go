package loop_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// However a message ends its connection, what was sent before arrives, once, and OnClose follows,
// once.
func TestOutputOfTheLastMessage(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(c *loop.Conn) error
		want error
	}{
		"close":        {func(c *loop.Conn) error { c.Close(); return nil }, nil},
		"twice":        {func(c *loop.Conn) error { c.CloseWithError(errOwn); c.Close(); return errors.New("late") }, errOwn},
		"error":        {func(*loop.Conn) error { return errOwn }, errOwn},
		"panic":        {func(*loop.Conn) error { panic(errOwn) }, errOwn},
		"other codec":  {func(c *loop.Conn) error { c.SetCodec(codec.Raw{}); c.Close(); return nil }, nil},
		"paused":       {func(c *loop.Conn) error { c.PauseRead(); return errOwn }, errOwn},
		"output ended": {func(c *loop.Conn) error { c.CloseWrite(); return errOwn }, errOwn},
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			srv := &loop.Server{Codec: &polite{}, Accept: func(*loop.Conn) loop.Handler {
				return script{
					Message: func(conn *loop.Conn, m []byte) error {
						j.add(string(m))
						_ = conn.Send(m)
						return c.end(conn)
					},
					Close: func(*loop.Conn, error) { j.add("closed") },
				}
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Send("one\ntwo\n")
				j.expect(t, "one", "closed")
				if got := p.Received(); !strings.HasPrefix(got, "seen\none\n") || strings.Contains(got, "two") {
					t.Errorf("received %q", got)
				}
				if !errors.Is(p.Reason(), c.want) {
					t.Errorf("reason %v", p.Reason())
				}
			})
		})
	}
}

// A write that fails within the input's own turn closes once, with that error; other connections
// get what they were sent.
func TestWriteFailsInTheTurnOfTheInput(t *testing.T) {
	closes := 0
	var own, other *loop.Conn
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		if own = c; other == nil {
			other = c
		}
		return script{
			Message: func(c *loop.Conn, m []byte) error {
				if c != other {
					_ = other.Send([]byte("before,"))
				}
				_ = c.Send(m)
				return other.Send([]byte("after"))
			},
			Close: func(*loop.Conn, error) { closes++; _ = other.Send([]byte(",closed")) },
		}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		q, p := srv.Open(), srv.Open()
		resume := srv.Stall(0)
		_ = own.Ref().Tell(func(c *loop.Conn) { _ = c.Send([]byte("y")) }) // which the peer's system answers with a reset
		p.Send("x")
		p.Close()
		resume()
		if !errors.Is(p.Reason(), syscall.EPIPE) || closes != 1 || q.Received() != "before,after,closed" {
			t.Errorf("reason %v, %d closes", p.Reason(), closes)
		}
	})
}

// Hooks that run after the flush may send and close anything.
func TestHooksOfTheEarlyFlush(t *testing.T) {
	var j journal
	var a, b *loop.Conn
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		h := script{Close: func(c *loop.Conn, err error) { j.add(fmt.Sprint(c.ID(), err)) }}
		if a == nil {
			a = c
			h.Message = func(c *loop.Conn, m []byte) error { return c.Send(m) }
			c.OnHighWater(3, func() {
				j.add("high")
				_ = b.Send([]byte("b is closed"))
				b.CloseWithError(errOwn)
				_ = a.Send([]byte("+"))
			})
			c.OnFlushed(func() { j.add("drained"); _ = a.Send([]byte("-")); a.Close() })
		} else {
			b = c
		}
		return h
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		p.Block(2)
		p.Send("123456")
		j.expect(t, "high", "2 "+errOwn.Error())
		p.Unblock()
		j.expect(t, "high", "2 "+errOwn.Error(), "drained", "1 <nil>")
		if got := p.Received() + "|" + q.Received(); got != "123456+-|b is closed" {
			t.Errorf("received %q", got)
		}
	})
}

// Connections that send to themselves and each other, close each other, pause, panic and are slow,
// at random: what Send took arrives, once and in order, unless the connection was dropped; and each
// closes once.
func TestFlushAtRandom(t *testing.T) {
	first := testkit.Seed(t, 0)
	for i := range testkit.Runs(200) {
		seed := first + i
		w := &flushWorld{rand: rand.New(rand.NewPCG(seed, 1))}
		srv := &loop.Server{Codec: codec.Lines{}, Accept: w.accept, Limits: loop.Limits{MaxOutbound: 64}, Timeouts: loop.Timeouts{Close: time.Hour}}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) { w.run(t, srv, seed) })
	}
}

// flushWorld is what TestFlushAtRandom knows.
type flushWorld struct {
	rand  *rand.Rand // the loop's
	conns []*flushConn
	n     int
}

type flushConn struct {
	w      *flushWorld
	c      *loop.Conn
	sent   []string
	closes int
	err    error
}

func (w *flushWorld) accept(c *loop.Conn) loop.Handler {
	h := &flushConn{w: w, c: c}
	w.conns = append(w.conns, h)
	c.OnHighWater(w.rand.IntN(20), h.act)
	c.OnFlushed(h.act)
	return h
}

func (h *flushConn) OnMessage(*loop.Conn, []byte) error {
	for range h.w.rand.IntN(4) {
		h.act()
	}
	return nil
}

func (h *flushConn) OnClose(_ *loop.Conn, err error) {
	h.closes++
	h.err = err
	h.w.any().send()
}

func (w *flushWorld) any() *flushConn { return w.conns[w.rand.IntN(len(w.conns))] }

func (h *flushConn) send() {
	h.w.n++
	m := fmt.Sprint(h.w.n)
	before := len(h.sent)
	h.sent = append(h.sent, m) // before Send: OnHighWater's hook may send more in it
	if h.c.Send([]byte(m)) != nil {
		h.sent = slices.Delete(h.sent, before, before+1)
	}
}

func (h *flushConn) act() {
	switch k := h.w.rand.IntN(40); {
	case k < 15:
		h.send()
	case k < 30:
		h.w.any().send()
	case k < 33:
		h.c.PauseRead()
		h.c.AfterFunc(time.Second, h.c.ResumeRead)
	case k < 35:
		_ = h.w.any().c.Ref().Tell(func(*loop.Conn) { h.act() })
	case k < 37:
		h.w.any().c.CloseWithError(errOwn)
	case k == 37:
		panic(errOwn)
	case k == 38:
		h.c.CloseWrite()
	}
}

func (w *flushWorld) run(t *testing.T, srv *looptest.Server, seed uint64) {
	peers := make([]*looptest.Peer, 6)
	for i := range peers {
		peers[i] = srv.Open()
	}
	random := rand.New(rand.NewPCG(seed, 2))
	for range 60 {
		p := peers[random.IntN(len(peers))]
		switch k := random.IntN(10); {
		case k < 7:
			p.Send("a\nb\nc\n")
		case k < 9:
			p.Block(random.IntN(30))
		default:
			p.Unblock()
		}
	}
	srv.Sleep(time.Minute)
	for _, p := range peers {
		p.Unblock()
	}
	if err := srv.Stop(); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	for i, h := range w.conns {
		got, want := peers[i].Received(), strings.Join(append(h.sent, ""), "\n")
		if h.closes != 1 {
			t.Errorf("seed %d: %d closes", seed, h.closes)
		}
		if got != want && !(errors.Is(h.err, loop.ErrSlowConsumer) && strings.HasPrefix(want, got)) {
			t.Errorf("seed %d: connection %d, %v: received %q, sent %q", seed, i, h.err, got, want)
		}
	}
}
