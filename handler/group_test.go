package handler_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// joining returns an Accept whose connections join g and say to it what they receive: to all, or
// with a leading "-" to all others; "leave" leaves.
func joining(g *handler.Group) loop.Accept {
	return func(c *loop.Conn) loop.Handler {
		g.Join(c)
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			switch {
			case string(msg) == "leave":
				g.Leave(c)
				return nil
			case bytes.HasPrefix(msg, []byte("-")):
				return g.BroadcastExcept(c.Ref(), msg)
			}
			return g.Broadcast(msg)
		})
	}
}

func open(srv *looptest.Server, n int) (peers []*looptest.Peer) {
	for range n {
		peers = append(peers, srv.Open())
	}
	return peers
}

func TestGroupBroadcast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := startLines(t, 3, joining(g))
		peers := open(srv, 7)
		if g.Len() != 7 {
			t.Errorf("Len %d, want 7", g.Len())
		}
		peers[0].Send("from a loop\n")
		msg := []byte("from elsewhere")
		if err := g.Broadcast(msg); err != nil {
			t.Error(err)
		}
		copy(msg, "xxxx") // it was copied
		peers[1].Send("-from 1 to the others\n")
		for i, p := range peers {
			want := "from a loop\nfrom elsewhere\n"
			if i != 1 {
				want += "-from 1 to the others\n"
			}
			wantReceived(t, p, want)
		}
	})
}

// What Flush has sent does not come again, and what comes later does.
func TestGroupFlush(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := startLines(t, 2, func(c *loop.Conn) loop.Handler {
			g.Join(c)
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				_ = g.Broadcast([]byte("one"))
				_ = g.BroadcastExcept(c.Ref(), []byte("two"))
				g.Flush(c)
				_ = c.Send([]byte("saved"))
				return g.Broadcast([]byte("three"))
			})
		})
		peers := open(srv, 4)
		peers[0].Send("x\n")
		wantReceived(t, peers[0], "one\nsaved\nthree\n")
		for _, p := range peers[1:] {
			wantReceived(t, p, "one\ntwo\nthree\n")
		}
	})
}

func TestGroupLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := startLines(t, 2, joining(g))
		p, q, r := srv.Open(), srv.Open(), srv.Open()
		p.Send("leave\n")
		p.Send("leave\n") // again: nothing
		q.Close()
		if g.Len() != 1 {
			t.Errorf("Len %d after a leave and a close, want 1", g.Len())
		}
		g.Broadcast([]byte("x"))
		testkit.Pass(0)
		wantReceived(t, p, "")
		wantReceived(t, r, "x\n")
		r.Reset()
		if g.Len() != 0 {
			t.Errorf("Len %d after all have gone", g.Len())
		}
		if err := g.Broadcast([]byte("y")); err != nil {
			t.Errorf("to nobody: %v", err)
		}
	})
}

// A connection that is refused after it has joined is no member.
func TestGroupRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			g.Join(c)
			return nil
		})
		srv.Open()
		if g.Len() != 0 {
			t.Errorf("Len %d, want 0", g.Len())
		}
	})
}

func TestGroupMembership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var g, other handler.Group
		srv := startLines(t, 1, silent)
		p := srv.Open()
		var c *loop.Conn
		srv.Do(0, func(l *loop.Loop) {
			for c = range l.Conns() {
			}
			for range 3 { // round after round, in two groups at once
				if g.Has(c) || !g.Join(c) || !g.Has(c) || g.Join(c) || !other.Join(c) {
					t.Error("Join or Has is wrong")
				}
				if !g.Leave(c) || g.Leave(c) || g.Has(c) || !other.Leave(c) {
					t.Error("Leave or Has is wrong")
				}
			}
			g.Join(c)
			other.Join(c)
			if conns, memberships, _ := handler.Tracked(l); conns != 1 || memberships != 2 {
				t.Errorf("%d memberships of %d connections are kept, want 2 of 1", memberships, conns)
			}
		})
		p.Close()
		srv.Do(0, func(l *loop.Loop) {
			g.Join(c) // too late
			if conns, _, _ := handler.Tracked(l); conns != 0 {
				t.Errorf("%d closed connections are kept", conns)
			}
		})
		testkit.Want(t, "g.Len()", g.Len(), 0)
		testkit.Want(t, "other.Len()", other.Len(), 0)
	})
}

func TestGroupMailboxFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := looptest.Start(t, &loop.Server{NumLoops: 2, Limits: loop.Limits{MaxMailbox: 5}, Codec: codec.Lines{}, Accept: joining(g)})
		peers := open(srv, 4) // two on each loop
		resume := srv.Stall(1)
		for i := range 5 {
			if err := g.Broadcast([]byte{'a' + byte(i)}); err != nil {
				t.Fatal(err)
			}
			testkit.Pass(0)
		}
		err := g.Broadcast([]byte("lost"))
		var u *handler.UnreachedError
		if !errors.Is(err, loop.ErrMailboxFull) || !errors.As(err, &u) || u.Loop != srv.Loops()[1] || u.Members != 2 {
			t.Errorf("Broadcast to a full mailbox: %v", err)
		}
		resume()
		g.Broadcast([]byte("z"))
		testkit.Pass(0)
		var reached int
		for _, p := range peers {
			switch got := p.Received(); got {
			case "a\nb\nc\nd\ne\nlost\nz\n":
				reached++
			case "a\nb\nc\nd\ne\nz\n":
			default:
				t.Errorf("received %q", got)
			}
		}
		if reached != 2 {
			t.Errorf("the loop that was not full: %d members got the message, want 2", reached)
		}
	})
}

// A member that broadcasts faster than the loop delivers is held back. None of its messages fails,
// and others are heard.
func TestGroupFloodIsHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const lines, limit = 10_000, 100
		g := handler.NewGroup(handler.GroupConfig{})
		longest := 0
		var srv *looptest.Server
		srv = looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxMailbox: limit, MaxOutbound: 64 << 20}, Codec: codec.Lines{},
			Accept: func(c *loop.Conn) loop.Handler {
				g.Join(c)
				return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
					longest = max(longest, srv.Stats().Mailbox)
					return g.BroadcastExcept(c.Ref(), msg)
				})
			}})
		peers := open(srv, 2)
		peers[0].Send(strings.Repeat("x\n", lines))
		peers[1].Send("hello\n")
		srv.Sleep(time.Minute)
		if got := strings.Count(peers[1].Received(), "x\n"); got != lines {
			t.Errorf("the other member got %d lines, want %d", got, lines)
		}
		if got := peers[0].Received(); got != "hello\n" {
			t.Errorf("the flooder got %q, want hello", got)
		}
		if longest > 2*limit {
			t.Errorf("up to %d broadcasts waited, want about %d", longest, limit)
		}
	})
}

// A loop without members, or without any more, is left alone.
func TestGroupOnlyLoopsWithMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := looptest.Start(t, &loop.Server{NumLoops: 2, Limits: loop.Limits{MaxMailbox: 1}, Codec: codec.Lines{}, Accept: joining(g)})
		stays, leaves := srv.Open(), srv.Open()
		leaves.Send("leave\n")
		resume := srv.Stall(1)
		defer resume()
		for range 5 {
			if err := g.Broadcast([]byte("x")); err != nil {
				t.Error(err)
			}
			testkit.Pass(0)
		}
		wantReceived(t, stays, "x\nx\nx\nx\nx\n")
	})
}

func TestGroupServerClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		var late error
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1,
			Codec:    codec.Lines{},
			Accept: func(c *loop.Conn) loop.Handler {
				g.Join(c)
				c.AfterClose(func(error) { late = g.Broadcast([]byte("x")) })
				return loop.HandlerFunc(echo)
			},
		})
		open(srv, 3)
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		if late != nil || g.Len() != 0 {
			t.Errorf("while draining: %v; then %d members", late, g.Len())
		}
		if err := g.Broadcast(nil); err != nil {
			t.Errorf("after the end, to nobody: %v", err)
		}
	})
}

// A member that does not read is closed, one whose codec refuses the message goes without; the
// others get it.
func TestGroupBadMembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1,
			Limits:   loop.Limits{MaxOutbound: 1000},
			Codec:    codec.Lines{},
			Accept:   joining(g),
			Listeners: []loop.Listener{
				{Addr: "tcp://127.0.0.1:0", Codec: codec.Lines{Max: 10}},
				{Addr: "tcp://127.0.0.1:0", Codec: panicking{}},
			},
		})
		slow, short, broken, good := srv.Open(), srv.OpenTo(1), srv.OpenTo(2), srv.Open()
		slow.Block(0)
		msg := strings.Repeat("x", 600)
		for range 3 {
			if err := g.Broadcast([]byte(msg)); err != nil {
				t.Error(err)
			}
			testkit.Pass(0)
		}
		g.Broadcast([]byte("fits"))
		testkit.Pass(0)
		wantReceived(t, good, strings.Repeat(msg+"\n", 3)+"fits\n")
		wantReceived(t, short, "fits\n")
		wantReason(t, slow, loop.ErrSlowConsumer)
		var p *loop.PanicError
		if !errors.As(broken.Reason(), &p) || srv.Stats().Panics != 1 {
			t.Errorf("a codec panicked: reason %v, %d panics counted", broken.Reason(), srv.Stats().Panics)
		}
		wantOpen(t, short)
		if g.Len() != 2 {
			t.Errorf("Len %d, want 2", g.Len())
		}
	})
}

// panicking is a codec that cannot encode.
type panicking struct{ codec.Lines }

func (panicking) AppendFrame(_, _ []byte) ([]byte, error) { panic("codec") }

// Random joins, leaves, closes and broadcasts on several loops at once: Len is exact in the end.
func TestGroupStress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		groups := make([]*handler.Group, 5)
		for i := range groups {
			groups[i] = handler.NewGroup(handler.GroupConfig{})
		}
		refs := make(chan loop.Ref, 40)
		srv := startLines(t, 4, func(c *loop.Conn) loop.Handler {
			refs <- c.Ref()
			return loop.HandlerFunc(echo)
		})
		open(srv, cap(refs))
		close(refs)
		first := testkit.Seed(t, 1)
		var wg sync.WaitGroup
		for ref := range refs {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(first, ref.ID())) // its loop's
				for range 50 {
					ref.Tell(func(c *loop.Conn) { shuffle(c, groups, random) })
				}
				if ref.ID()%2 == 0 {
					ref.Tell((*loop.Conn).Close)
				}
			})
		}
		wg.Wait()
		testkit.Pass(time.Second)
		for i := range groups {
			members := 0
			for l := range srv.Loops() {
				srv.Do(l, func(l *loop.Loop) {
					for c := range l.Conns() {
						if groups[i].Has(c) {
							members++
						}
					}
				})
			}
			if n := groups[i].Len(); n != members || n > 20 {
				t.Errorf("group %d: Len %d, but %d are members", i, n, members)
			}
		}
		srv.Stop()
		for i := range groups {
			if n := groups[i].Len(); n != 0 {
				t.Errorf("group %d: %d members after the end", i, n)
			}
		}
	})
}

// shuffle does something to each group.
func shuffle(c *loop.Conn, groups []*handler.Group, random *rand.Rand) {
	for _, g := range groups {
		switch random.IntN(3) {
		case 0:
			g.Join(c)
		case 1:
			g.Leave(c)
		default:
			g.Broadcast([]byte("x"))
		}
	}
}

// A member whose codec keeps no more before its handshake is done is closed: it would get later
// broadcasts, and not those between.
func TestGroupBeforeTheHandshake(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := looptest.Start(t, &loop.Server{Codec: &websocket.Codec{}, Accept: joining(g)})
		few, many := srv.Open(), srv.Open()
		_ = g.Broadcast(make([]byte, 1000))
		wantOpen(t, few)
		few.Close()
		for range 100 {
			_ = g.Broadcast(make([]byte, 1000))
		}
		testkit.Pass(time.Second)
		wantReason(t, many, codec.ErrTooLong)
		if n := g.Len(); n != 0 {
			t.Errorf("%d members are left", n)
		}
	})
}
