package handler_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// pooled is a Pool of connections to a scripted backend, whose messages are "id text", a line each.
type pooled struct {
	t       *testing.T
	srv     *looptest.Server
	backend *looptest.Backend
	pool    *handler.Pool[string]
	peers   []*looptest.Peer
}

func newPooled(t *testing.T, cfg handler.PoolConfig[string]) *pooled {
	k := &pooled{t: t, srv: looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxOutbound: 1 << 10}, Accept: echoes})}
	k.backend = k.srv.Backend("tcp", "backend:1")
	cfg.Link.Addr, cfg.Link.Dialer.Codec = "tcp://backend:1", codec.Lines{Max: 2 << 10}
	if cfg.Accept == nil {
		cfg.Accept = answering
	}
	k.do(func(l *loop.Loop) { k.pool = handler.NewPool(l, cfg) })
	k.accept()
	return k
}

// answering returns a handler that gives answers to calls.
func answering(_ *loop.Conn, calls *handler.Calls[string]) loop.Handler {
	return loop.HandlerFunc(func(_ *loop.Conn, line []byte) error {
		var id uint64
		var text string
		if _, err := fmt.Sscan(string(line), &id, &text); err == nil { // or it was asked half a question
			calls.Answer(id, text)
		}
		return nil
	})
}

func (k *pooled) do(f func(l *loop.Loop)) { k.srv.Do(0, f) }

// accept takes what is dialed.
func (k *pooled) accept() (n int) {
	for p := k.backend.Accept(); p != nil; p = k.backend.Accept() {
		k.peers = append(k.peers, p)
		n++
	}
	return n
}

// call asks something, and returns what becomes of it.
func (k *pooled) call(text string) *poolCall {
	o := new(poolCall)
	k.do(func(*loop.Loop) {
		o.begun = k.pool.Call(time.Minute, func(dst []byte, id uint64) []byte { return fmt.Appendf(dst, "%d %s", id, text) }, o.take)
	})
	return o
}

// A poolCall is what became of a call.
type poolCall struct {
	begun  error
	ended  int
	answer string
	err    error
}

func (o *poolCall) take(answer string, err error) { o.ended, o.answer, o.err = o.ended+1, answer, err }

// requests returns the messages that a peer has got.
func requests(p *looptest.Peer) []string {
	return strings.FieldsFunc(p.Received(), func(r rune) bool { return r == '\n' })
}

// answer makes a peer answer each request with the same text.
func answer(p *looptest.Peer) (n int) {
	for _, line := range requests(p) {
		p.Send(line + "\n")
		n++
	}
	return n
}

func (k *pooled) wantStats(open int, calls handler.CallStats) {
	k.t.Helper()
	k.do(func(*loop.Loop) {
		if got := k.pool.Stats(); got.Connected != open || got.Calls != calls {
			k.t.Errorf("%+v, want %d open, %+v", got, open, calls)
		}
	})
}

// Calls are spread over the connections that stand, and go where the fewest are under way.
func TestPoolSpreads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newPooled(t, handler.PoolConfig[string]{})
		if len(k.peers) != handler.DefaultPoolSize {
			t.Fatalf("%d connections", len(k.peers))
		}
		k.do(func(*loop.Loop) { handler.SetPoolTurn(k.pool, math.MaxUint-4) }) // the number of a call may overflow
		var all []*poolCall
		for i := range 9 {
			all = append(all, k.call(fmt.Sprint(i)))
		}
		if n := answer(k.peers[0]); n != 3 {
			t.Errorf("one was asked %d times", n)
		}
		for i := range 3 { // the others are slow
			all = append(all, k.call(fmt.Sprint(9+i)))
		}
		if n := answer(k.peers[0]); n != 3 {
			t.Errorf("one that is quick was asked %d times more", n)
		}
		answer(k.peers[1])
		answer(k.peers[2])
		for i, o := range all {
			if o.begun != nil || o.ended != 1 || o.answer != fmt.Sprint(i) || o.err != nil {
				t.Errorf("call %d: %+v", i, *o)
			}
		}
		k.wantStats(3, handler.CallStats{Begun: 12, Answered: 12})
	})
}

// When a connection closes, its calls fail, and further calls use the others, including a call that
// begins in the done function of a failed one. The connection comes back.
func TestPoolLosesConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newPooled(t, handler.PoolConfig[string]{Size: 2})
		var again *poolCall
		first := new(poolCall)
		k.do(func(*loop.Loop) {
			request := func(dst []byte, id uint64) []byte { return fmt.Appendf(dst, "%d x", id) }
			first.begun = k.pool.Call(0, request, func(answer string, err error) {
				first.take(answer, err)
				again = new(poolCall)
				again.begun = k.pool.Call(0, request, again.take)
			})
		})
		asks := func(p *looptest.Peer) bool { return len(requests(p)) > 0 }
		hit, other := k.peers[0], k.peers[1]
		if !asks(hit) {
			hit, other = other, hit
		}
		hit.Close()
		if first.begun != nil || first.ended != 1 || first.err != io.EOF || again == nil || again.begun != nil || !asks(other) {
			t.Fatalf("%+v, and then %+v", *first, again)
		}
		other.Close()
		if again.ended != 1 || again.err != io.EOF {
			t.Errorf("%+v", *again)
		}
		if o := k.call("nobody"); !errors.Is(o.begun, handler.ErrAway) || o.ended != 0 {
			t.Errorf("%+v", *o)
		}
		k.wantStats(0, handler.CallStats{Begun: 2, Failed: 2})
		k.srv.Sleep(time.Minute)
		if n := k.accept(); n != 2 {
			t.Fatalf("%d connections came back", n)
		}
		o := k.call("hello")
		answer(k.peers[2])
		answer(k.peers[3])
		if o.ended != 1 || o.answer != "hello" {
			t.Errorf("%+v", *o)
		}
		k.wantStats(2, handler.CallStats{Begun: 3, Answered: 1, Failed: 2})
	})
}

// A connection whose codec is in its closing handshake is passed over.
func TestPoolPassesOverClosing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var codecs []*closingLines
		k := newPooled(t, handler.PoolConfig[string]{Size: 2, Accept: func(c *loop.Conn, calls *handler.Calls[string]) loop.Handler {
			cd := new(closingLines)
			codecs = append(codecs, cd)
			c.SetCodec(cd)
			return answering(c, calls)
		}})
		k.do(func(*loop.Loop) { codecs[0].closing = true })
		for i := range 10 {
			o := k.call("hello")
			answer(k.peers[0])
			answer(k.peers[1])
			if o.begun != nil || o.answer != "hello" {
				t.Errorf("call %d: %+v", i, *o)
			}
		}
		k.do(func(*loop.Loop) { testkit.Want(t, "connections in use", k.pool.Stats().Connected, 1) })
	})
}

type closingLines struct {
	codec.Lines
	closing bool
}

func (c *closingLines) AppendFrame(dst, frame []byte) ([]byte, error) {
	if c.closing {
		return dst, fmt.Errorf("%w: it has said goodbye", codec.ErrClosed)
	}
	return c.Lines.AppendFrame(dst, frame)
}

// What cannot be sent is no call: if a connection takes nothing more another one is asked, and if
// the codec refuses the message nobody is.
func TestPoolRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newPooled(t, handler.PoolConfig[string]{Size: 3, Calls: handler.CallConfig{Max: 4}})
		if o := k.call("two\nlines"); o.begun == nil || errors.Is(o.begun, handler.ErrAway) {
			t.Errorf("%+v", *o)
		}
		k.wantStats(3, handler.CallStats{Begun: 1, Cancelled: 1})
		var all []*poolCall
		for range 12 {
			all = append(all, k.call("x"))
		}
		if o := k.call("one too many"); !errors.Is(o.begun, handler.ErrTooManyCalls) {
			t.Errorf("%+v", *o)
		}
		for _, p := range k.peers {
			if n := answer(p); n != 4 {
				t.Errorf("one was asked %d times", n)
			}
		}
		for _, p := range k.peers[:2] {
			p.Block(0)
		}
		long := strings.Repeat("x", 1<<10) // as much as may wait
		for range 6 {
			all = append(all, k.call(long))
		}
		answer(k.peers[2])
		slow := 0
		for i, o := range all {
			if errors.Is(o.err, loop.ErrSlowConsumer) {
				slow++
			} else if o.begun != nil || o.ended != 1 || o.err != nil {
				t.Errorf("call %d: %v, ended %d times with %v", i, o.begun, o.ended, o.err)
			}
		}
		if slow != 2 {
			t.Errorf("%d calls were on connections that took nothing", slow)
		}
	})
}

// Stop fails what is under way, and ends dialing; the end of a connection is not its end.
func TestPoolStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newPooled(t, handler.PoolConfig[string]{})
		o := k.call("x")
		k.do(func(*loop.Loop) { k.pool.Stop() })
		if o.ended != 1 || !errors.Is(o.err, loop.ErrClosed) {
			t.Errorf("%+v", *o)
		}
		if o := k.call("x"); !errors.Is(o.begun, handler.ErrAway) {
			t.Errorf("%+v", *o)
		}
		k.srv.Sleep(time.Hour)
		if n := k.accept(); n > 0 {
			t.Errorf("%d are dialed after Stop", n)
		}
	})
}

// Middlewares are around each handler, and a connection that Open refuses is dialed again.
func TestPoolOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refuse := 2
		var states []error
		k := newPooled(t, handler.PoolConfig[string]{
			Link:        handler.LinkConfig{State: func(_ *loop.Conn, err error) { states = append(states, err) }},
			Size:        1,
			Middlewares: []handler.Middleware{handler.Heartbeat{Interval: time.Second, Message: []byte("0 ping")}},
			Accept: func(c *loop.Conn, calls *handler.Calls[string]) loop.Handler {
				if refuse--; refuse >= 0 {
					return nil
				}
				_, _ = calls.Begin(0, func(string, error) {}) // who we are
				return answering(c, calls)
			},
		})
		k.srv.Sleep(2 * time.Second)
		if n := k.accept() + len(k.peers); n < 3 || refuse >= 0 {
			t.Fatalf("%d connections, %d to refuse", n, refuse)
		}
		p := k.peers[len(k.peers)-1]
		if got := p.Received(); !strings.Contains(got, "0 ping\n") {
			t.Errorf("received %q", got)
		}
		k.wantStats(1, handler.CallStats{Pending: 1, Begun: 1})
		k.srv.Sleep(5 * time.Second)
		if !slices.ContainsFunc(states, func(err error) bool { return errors.Is(err, handler.ErrHeartbeat) }) {
			t.Errorf("one that is dead stays: %v", states)
		}
	})
}

// Whatever the backend does: each call that was begun ends once.
func TestPoolEndsEachCallOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(testkit.Seed(t, 1), 1))
		k := newPooled(t, handler.PoolConfig[string]{Size: 4, Calls: handler.CallConfig{Max: 20}})
		var all []*poolCall
		for range 3000 {
			k.accept()
			var p *looptest.Peer
			if len(k.peers) > 0 {
				p = k.peers[rng.IntN(len(k.peers))]
			}
			switch n := rng.IntN(100); {
			case n < 60 || p == nil:
				all = append(all, k.call("x"))
			case n < 90:
				answer(p)
			case n < 93:
				p.Close()
			case n < 95:
				p.Reset()
			case n < 97:
				p.Block(rng.IntN(100))
			default:
				k.srv.Sleep(time.Duration(rng.Int64N(int64(20 * time.Second))))
			}
		}
		k.srv.Sleep(2 * time.Minute)
		begun := uint64(0)
		for i, o := range all {
			want := 1
			if o.begun != nil {
				want = 0
			} else {
				begun++
			}
			if o.ended != want {
				t.Fatalf("call %d: %+v", i, *o)
			}
		}
		k.do(func(*loop.Loop) {
			s := k.pool.Stats().Calls
			if s.Pending != 0 || s.Answered+s.TimedOut+s.Failed != begun || s.Begun != begun+s.Cancelled || begun < 300 {
				t.Errorf("%d begun, %+v", begun, s)
			}
		})
	})
}

// A call over a pool costs no allocation but its functions.
func TestPoolDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; without -race this runs")
	}
	bubble(t, func(t *testing.T) {
		var lines []*handler.Calls[string]
		k := newPooled(t, handler.PoolConfig[string]{
			Size: 2,
			Accept: func(c *loop.Conn, calls *handler.Calls[string]) loop.Handler {
				lines = append(lines, calls)
				return answering(c, calls)
			},
		})
		var id uint64
		request := func(dst []byte, n uint64) []byte {
			id = n
			return append(dst, "hello"...)
		}
		ended := 0
		done := func(string, error) { ended++ }
		var n float64
		k.do(func(*loop.Loop) {
			n = testing.AllocsPerRun(1000, func() {
				if err := k.pool.Call(0, request, done); err != nil {
					t.Error(err)
				}
				_ = lines[0].Answer(id, "") || lines[1].Answer(id, "")
			})
		})
		if n > 0 || ended < 1000 {
			t.Errorf("%v allocations, %d calls", n, ended)
		}
	})
}

func TestPoolMisuse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: echoes})
		dial := handler.LinkConfig{Addr: "tcp://backend:1"}
		for what, cfg := range map[string]handler.PoolConfig[string]{
			"no Accept":     {Link: dial},
			"two Accepts":   {Link: handler.LinkConfig{Addr: dial.Addr, Accept: echoes}, Accept: answering},
			"negative Size": {Link: dial, Accept: answering, Size: -1},
			"bad limits":    {Link: dial, Accept: answering, Calls: handler.CallConfig{Max: -1}},
			"no address":    {Accept: answering},
		} {
			srv.Do(0, func(l *loop.Loop) {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: it does not panic", what)
					}
				}()
				handler.NewPool(l, cfg)
			})
		}
	})
}
