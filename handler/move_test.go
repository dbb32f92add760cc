package handler_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Members move between loops at random, while several goroutines broadcast and tell: each gets what
// was said after it had joined, in the order in which it was said. LOOPWHEEL_SLOW tries 1,000 seeds.
func TestGroupMoves(t *testing.T) {
	first, seeds := testkit.Seed(t, 1), uint64(20)
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		seeds = 1_000
	}
	for seed := first; seed < first+seeds; seed++ {
		synctest.Test(t, func(t *testing.T) {
			group := handler.NewGroup(handler.GroupConfig{Backlog: int(seed%2) * 1000})
			var conns []*loop.Conn
			srv := looptest.Start(t, &loop.Server{NumLoops: 3, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
				conns = append(conns, c)
				group.Join(c)
				return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
			}})
			var peers []*looptest.Peer
			for range 12 {
				peers = append(peers, srv.Open())
			}
			rnd := rand.New(rand.NewPCG(seed, 0))
			said := 0
			want := make([]strings.Builder, len(peers))
			say := func(i int, s string) { // to one, or to all if i is negative
				if i >= 0 {
					fmt.Fprintln(&want[i], s)
					return
				}
				for i := range want {
					fmt.Fprintln(&want[i], s)
				}
			}
			for range 400 {
				i := rnd.IntN(len(conns))
				c := conns[i]
				said++
				s := fmt.Sprint(said)
				switch rnd.IntN(8) {
				case 0, 1, 2:
					to := srv.Loops()[rnd.IntN(3)]
					must(t, c.Ref().Tell(func(c *loop.Conn) { _ = c.MoveTo(to, nil) })) // it may be about to move
				case 3, 4:
					must(t, group.Broadcast([]byte(s)))
					say(-1, s)
				case 5:
					must(t, group.Each(func(c *loop.Conn) { must(t, c.Send([]byte(s))) }))
					say(-1, s)
				case 6:
					must(t, c.Ref().Tell(func(c *loop.Conn) { must(t, c.Send([]byte(s))) }))
					say(i, s)
				case 7:
					if rnd.IntN(4) == 0 {
						synctest.Wait()
					}
				}
			}
			srv.Sleep(time.Second)
			testkit.Want(t, "members", group.Len(), len(conns))
			for i, p := range peers {
				if got := p.Received(); got != want[i].String() {
					t.Errorf("seed %d: member %d got %q, want %q", seed, i, got, want[i].String())
				}
			}
			for _, p := range peers {
				p.Close()
			}
			srv.Sleep(time.Second)
			testkit.Want(t, "members at the end", group.Len(), 0)
		})
		if t.Failed() {
			return
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Package handler's state of a connection moves with the connection.
func TestStateMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		users := handler.NewRegistry[string]()
		var c *loop.Conn
		var calls *handler.Calls[string]
		var replies *handler.Replies
		accept := handler.Chain(func(x *loop.Conn) loop.Handler {
			c = x
			users.Enter("ann", c)
			calls = handler.NewCalls[string](c, handler.CallConfig{})
			replies = handler.NewReplies(c, handler.RepliesConfig{})
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				calls.Answer(1, string(msg))
				return nil
			})
		}, handler.Heartbeat{Interval: 10 * time.Second, Message: []byte("ping")}, handler.Limit{PerSecond: 1, Burst: 2})
		srv := looptest.Start(t, &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Accept: accept})
		p := srv.Open()
		from := c.Loop().Index()
		var answer, asked string
		var reply *handler.Reply
		var asking sync.WaitGroup
		srv.Do(from, func(l *loop.Loop) {
			must(t, c.Ref().Tell(func(c *loop.Conn) {
				_, err := calls.Begin(time.Minute, func(a string, err error) { answer = fmt.Sprint(a, err) })
				must(t, err)
				reply = replies.Later()
				must(t, replies.Write([]byte("second\n")))
				actor, err := handler.Spawn(srv.Loops()[1-from], func(a *handler.Actor[handler.Question[int]]) func(handler.Question[int]) {
					return func(q handler.Question[int]) { a.AfterFunc(time.Second, func() { q.Answer(7) }) }
				})
				must(t, err)
				handler.Ask(l, actor, time.Minute, func(q handler.Question[int]) handler.Question[int] { return q }, func(n int, err error) {
					asked = fmt.Sprint(n, err, c.Loop().Index())
					_ = c.Log() // which looks where it is called
				})
			}))
			must(t, c.Ref().Tell(func(c *loop.Conn) { must(t, c.MoveTo(srv.Loops()[1-from], nil)) }))
		})
		asking.Go(func() {
			got, err := handler.AskConnWait(t.Context(), users.Get("ann"), func(c *loop.Conn, q handler.Question[int]) { q.Answer(c.Loop().Index()) })
			must(t, err)
			testkit.Want(t, "the loop where it is asked", got, 1-from)
		})
		asking.Wait()
		srv.Sleep(2 * time.Second)
		testkit.Want(t, "the answer to Ask", asked, fmt.Sprint(7, nil, 1-from))
		srv.Do(1-from, func(*loop.Loop) {
			reply.Done([]byte("first\n"))
		})
		testkit.Want(t, "replies", p.Received(), "first\nsecond\n")
		p.Send("yes\n")
		testkit.Want(t, "the answer to a call", answer, "yes<nil>")
		srv.Sleep(11 * time.Second)
		testkit.Want(t, "heartbeat", p.Received(), "ping\n")
		p.Send("1\n2\n3\n4\n")
		testkit.WantErr(t, "the limit", p.Reason(), handler.ErrRateLimit)
		testkit.Want(t, "keys", users.Len(), 0)
	})
}

// Two members change places while a broadcast is under way. Both stay members, and can move again.
func TestGroupMembersSwapLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := handler.NewGroup(handler.GroupConfig{})
		var conns []*loop.Conn
		srv := looptest.Start(t, &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
			room.Join(c)
			conns = append(conns, c)
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		}})
		peers := []*looptest.Peer{srv.Open(), srv.Open()}
		first, second := conns[0].Loop(), conns[1].Loop()
		busy := func() { time.Sleep(90 * time.Millisecond) } // no event: a callback that takes long
		must(t, first.Post(func() {
			_ = conns[0].MoveTo(second, nil)
			busy()
		}))
		time.Sleep(20 * time.Millisecond) // in virtual time
		must(t, room.Broadcast([]byte("one")))
		must(t, first.Post(busy))
		time.Sleep(100 * time.Millisecond)
		must(t, second.Post(func() { _ = conns[1].MoveTo(first, nil) }))
		time.Sleep(time.Second)
		must(t, room.Broadcast([]byte("two")))
		must(t, first.Post(func() { _ = conns[1].MoveTo(second, nil) }))
		time.Sleep(time.Second)
		must(t, room.Broadcast([]byte("three")))
		synctest.Wait()
		for i, p := range peers {
			if got := string(p.Received()); got != "one\ntwo\nthree\n" {
				t.Errorf("member %d got %q, want all three", i, got)
			}
		}
		if n := room.Len(); n != 2 {
			t.Errorf("Len is %d, want 2", n)
		}
	})
}

// A member that leaves and joins again before its move is over gets nothing from before that.
func TestGroupRejoinInAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := handler.NewGroup(handler.GroupConfig{})
		var conns []*loop.Conn
		srv := looptest.Start(t, &loop.Server{NumLoops: 2, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
			conns = append(conns, c)
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
		}})
		peer := srv.Open()
		srv.Open()
		from, to := conns[0].Loop(), conns[1].Loop()
		busy := func() { time.Sleep(90 * time.Millisecond) } // no event: a callback that takes long
		must(t, from.Post(func() {
			_ = conns[0].MoveTo(to, func(c *loop.Conn) {
				room.Join(c)
				c.AfterFunc(50*time.Millisecond, func() {
					room.Leave(c)
					room.Join(c)
					_ = c.Send([]byte("joined again"))
				})
			})
			busy()
		}))
		time.Sleep(20 * time.Millisecond) // in virtual time
		must(t, from.Post(busy))
		time.Sleep(100 * time.Millisecond)
		must(t, room.Broadcast([]byte("before that")))
		time.Sleep(time.Second)
		if got := peer.Received(); got != "joined again\n" {
			t.Errorf("got %q, want only what came after the second Join", got)
		}
	})
}
