package handler_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A chaos has connections whose hooks do at random what users do with Groups, Registries, Calls,
// Replies, Pools and Links, close and stop them, and panic. It knows what must hold all the same:
// each call ends once, replies come in order, and nothing is left when all has ended.
type chaos struct {
	t        *testing.T
	srv      *looptest.Server
	group    *handler.Group
	registry *handler.Registry[int]
	at       [2]chaosLoop
	begun    atomic.Int64 // calls
	ended    atomic.Int64
	asking   sync.WaitGroup
}

// chaosLoop is what one loop has.
type chaosLoop struct {
	rng  *rand.Rand
	pool *handler.Pool[string]
	link *handler.Link
}

// chaosConn is the handler of one connection.
type chaosConn struct {
	*chaos
	c       *loop.Conn
	replies *handler.Replies
	calls   *handler.Calls[string]
	next    int // reply
	depth   int // of hooks within hooks
}

const injected = "a panic of the test"

// Write takes the server's log: of panics only those of the test may be in it.
func (x *chaos) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`"stack"`)) && !bytes.Contains(line, []byte(injected)) {
		x.t.Errorf("%s", line)
	}
	return len(line), nil
}

func (x *chaos) accept(c *loop.Conn) loop.Handler {
	s := &chaosConn{chaos: x, c: c, replies: handler.NewReplies(c, handler.RepliesConfig{MaxWaiting: 8}), calls: handler.NewCalls[string](c, handler.CallConfig{IDBits: 8})}
	c.AfterClose(func(error) { s.hook() })
	c.OnHighWater(1000, s.hook)
	c.OnFlushed(s.hook)
	return s
}

func (s *chaosConn) OnMessage(*loop.Conn, []byte) error { s.hook(); return nil }
func (s *chaosConn) OnClose(*loop.Conn, error)          { s.hook() }

// hook is called in each hook.
func (s *chaosConn) hook() {
	on := &s.at[s.c.Loop().Index()]
	if s.depth++; s.depth < 4 {
		for range on.rng.IntN(3) {
			s.act(on)
		}
	}
	s.depth--
	switch on.rng.IntN(40) {
	case 0:
		s.depth = 0
		panic(injected)
	case 1:
		s.c.Close()
	case 2:
		on.link.Stop()
	case 3:
		on.pool.Stop()
	}
}

// call returns the done function of a call, of which it keeps account.
func (s *chaosConn) call() func(string, error) {
	var over atomic.Bool
	return func(string, error) {
		if over.Swap(true) {
			s.t.Error("a call has ended twice")
		}
		s.ended.Add(1)
		s.hook()
	}
}

// act does one thing.
func (s *chaosConn) act(on *chaosLoop) {
	r, c := on.rng, s.c
	soon := time.Duration(r.IntN(50)) * time.Millisecond
	switch r.IntN(16) {
	case 0:
		s.group.Join(c)
	case 1:
		s.group.Leave(c)
	case 2:
		_ = s.group.BroadcastKey(strconv.Itoa(r.IntN(3)), make([]byte, r.IntN(2000)))
	case 3:
		_ = s.group.Each(func(c *loop.Conn) {
			if s, ok := loop.HandlerAs[*chaosConn](c); ok {
				s.hook()
			}
		})
	case 4, 5:
		_ = s.registry.Enter(r.IntN(5), c).Tell(func(c *loop.Conn) { c.Close() })
	case 6:
		s.registry.Leave(r.IntN(5), c)
	case 7:
		if _, err := s.calls.Begin(soon, s.call()); err == nil {
			s.begun.Add(1)
		}
	case 8:
		s.calls.Answer(r.Uint64N(8), "")
	case 9:
		if s.calls.Cancel(r.Uint64N(8)) {
			s.ended.Add(1)
		}
	case 10:
		err := on.pool.Call(soon, func(dst []byte, id uint64) []byte { return strconv.AppendUint(dst, id, 10) }, s.call())
		if err == nil {
			s.begun.Add(1)
		}
	case 11:
		_ = on.link.Send(make([]byte, r.IntN(3000)))
	case 12:
		reply := s.replies.Later()
		text := s.reply()
		c.Loop().AfterFunc(soon, func() { reply.Done(text) })
	case 13:
		text := s.reply()
		err := s.replies.RunOn(s.srv.Loops()[r.IntN(2)], func(dst []byte) []byte {
			if text[len(text)-2] == '7' { // of some
				panic(injected)
			}
			return append(dst, text...)
		})
		if err != nil {
			s.next--
		}
	case 14:
		text := s.reply()
		if s.replies.Write(text) != nil {
			s.next--
		}
	case 15:
		s.asking.Go(func() {
			_, _ = handler.AskConnWait(s.t.Context(), c.Ref(), func(c *loop.Conn, a handler.Question[int]) {
				c.Loop().AfterFunc(soon, func() { a.Answer(1) })
				s.hook()
			})
		})
	}
}

// reply returns the next reply: its number, which the peer looks at, and a filling.
func (s *chaosConn) reply() []byte {
	s.next++
	return fmt.Appendf(nil, "r%s %d\n", strings.Repeat(".", s.at[s.c.Loop().Index()].rng.IntN(500)), s.next)
}

// chaosPeer is the other end of a connection.
type chaosPeer struct {
	*looptest.Peer
	said string
}

// check looks at the replies that have come: they are those from 1 on, in order.
func (p *chaosPeer) check(t *testing.T) {
	p.said += p.Received()
	want := 1
	for line := range strings.Lines(p.said) {
		if _, number, ok := strings.Cut(line, " "); ok && line[0] == 'r' && line[len(line)-1] == '\n' {
			if number != fmt.Sprintln(want) {
				t.Fatalf("%v: reply %q, want %d", p.Addr(), number, want)
			}
			want++
		}
	}
}

func (x *chaos) run(t *testing.T, seed uint64) {
	x.t = t
	rng := rand.New(rand.NewPCG(seed, 9))
	x.group, x.registry = handler.NewGroup(handler.GroupConfig{Backlog: rng.IntN(2) * 3}), handler.NewRegistry[int]()
	x.srv = looptest.Start(t, &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Accept: x.accept, Limits: loop.Limits{MaxOutbound: 16 << 10},
		Timeouts: loop.Timeouts{Close: time.Second}, Logger: zerolog.New(x)})
	backend := x.srv.Backend("tcp", "backend:1")
	for i := range x.at {
		x.srv.Do(i, func(l *loop.Loop) {
			on := &x.at[i]
			on.rng = rand.New(rand.NewPCG(seed, uint64(i)))
			redial := handler.LinkConfig{Addr: "tcp://backend:1", Dialer: loop.Dialer{Codec: codec.Lines{}}, Backlog: 3, DropOldest: i == 0}
			on.pool = handler.NewPool(l, handler.PoolConfig[string]{Link: redial, Accept: func(_ *loop.Conn, calls *handler.Calls[string]) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					id, err := strconv.ParseUint(string(msg), 10, 64)
					calls.Answer(id, "")
					return err
				})
			}})
			redial.Accept = x.accept
			redial.State = func(*loop.Conn, error) {
				if on.link != nil && on.rng.IntN(8) == 0 {
					on.link.Stop()
					panic(injected)
				}
			}
			on.link = handler.NewLink(l, redial)
		})
	}
	var peers []*chaosPeer
	for range 100 {
		if p := backend.Accept(); p != nil {
			own := rand.New(rand.NewPCG(seed, rng.Uint64()))
			p.Answer(func(got []byte) []byte { // the ids that were asked for, of some
				if own.IntN(3) == 0 {
					return nil
				}
				return got
			})
		}
		if len(peers) < 6 {
			peers = append(peers, &chaosPeer{Peer: x.srv.Open()})
		}
		p := peers[rng.IntN(len(peers))]
		switch rng.IntN(12) {
		case 0:
			p.Close()
		case 1:
			p.Reset()
		case 2:
			p.CloseWrite()
		case 3:
			p.Block(rng.IntN(2000))
		case 4:
			p.Unblock()
		default:
			p.Send(strings.Repeat("x\n", 1+rng.IntN(4)))
		}
		p.check(t)
		peers = slices.DeleteFunc(peers, func(p *chaosPeer) bool { return p.Ended() })
		testkit.Pass(time.Duration(rng.IntN(30)) * time.Millisecond)
	}
	for i := range x.at {
		x.srv.Do(i, func(*loop.Loop) { x.at[i].link.Stop(); x.at[i].pool.Stop() })
	}
	for _, p := range peers {
		p.Unblock()
		p.check(t)
		p.Close()
	}
	testkit.Pass(time.Minute)
	x.asking.Wait()
	for what, got := range map[string]int{"members": x.group.Len(), "keys": x.registry.Len(), "connections with keys": handler.Registered(x.registry),
		"calls": int(x.begun.Load() - x.ended.Load()), "open connections": x.srv.Stats().Conns} {
		testkit.Want(t, what+" at the end", got, 0)
	}
	for i := range x.at {
		x.srv.Do(i, func(l *loop.Loop) {
			conns, memberships, _ := handler.Tracked(l)
			testkit.Want(t, "connections that are tracked", conns+memberships, 0)
		})
	}
}

// Whatever happens in the hooks, for each of the seeds. LOOPWHEEL_SLOW tries 500 of them.
func TestChaos(t *testing.T) {
	seeds := uint64(50)
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		seeds = 500
	}
	first := testkit.Seed(t, 1)
	var begun int64
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var x chaos
				x.run(t, seed)
				begun += x.begun.Load()
			})
		})
	}
	if begun < 10*int64(seeds) {
		t.Errorf("%d calls have been begun with %d seeds: too little happens", begun, seeds)
	}
}
