package handler_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A member gets what is broadcast from its Join to its Leave, exactly: not what was on its way to
// its loop before.
func TestGroupJoinInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := startLines(t, 1, silent)
		p, q := srv.Open(), srv.Open()
		srv.Do(0, func(l *loop.Loop) {
			var conns []*loop.Conn
			for c := range l.Conns() {
				conns = append(conns, c)
			}
			a, b := conns[0], conns[1]
			g.Join(a)
			g.Broadcast([]byte("1"))
			g.Join(b)
			g.Broadcast([]byte("2"))
			g.Leave(a) // before either has arrived
			g.Broadcast([]byte("3"))
			g.Join(a)
			g.Broadcast([]byte("4"))
		})
		wantReceived(t, p, "4\n")
		wantReceived(t, q, "2\n3\n4\n")
	})
}

// A snapshot that is taken together with Join, and extended together with Broadcast, has neither
// gap nor overlap with what the member gets: the way to give a room a history.
func TestGroupJoinWithHistory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const last = 2000
		g := handler.NewGroup(handler.GroupConfig{})
		var mu sync.Mutex
		said := 0
		refs := make(chan loop.Ref, 30)
		srv := startLines(t, 3, func(c *loop.Conn) loop.Handler {
			refs <- c.Ref()
			return loop.HandlerFunc(echo)
		})
		peers := open(srv, cap(refs))
		var wg sync.WaitGroup
		wg.Go(func() {
			for range last {
				mu.Lock()
				said++
				g.Broadcast(fmt.Append(nil, said))
				mu.Unlock()
				runtime.Gosched()
			}
		})
		wg.Go(func() {
			for range cap(refs) {
				(<-refs).Tell(func(c *loop.Conn) {
					mu.Lock()
					defer mu.Unlock()
					g.Join(c)
					c.Send(fmt.Append(nil, said))
				})
				runtime.Gosched()
			}
		})
		wg.Wait()
		testkit.Pass(0)
		for _, p := range peers {
			next := -1
			for line := range strings.Lines(p.Received()) {
				n, _ := strconv.Atoi(strings.TrimSpace(line))
				if next >= 0 && n != next {
					t.Fatalf("%v: %d came where %d was due", p.Addr(), n, next)
				}
				next = n + 1
			}
			if next != last+1 {
				t.Errorf("%v: the last was %d", p.Addr(), next-1)
			}
		}
	})
}

// All members see all broadcasts in one order, from whatever goroutine or loop they come, and each
// sender's in its own.
func TestGroupTotalOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const senders, each = 8, 50
		g := handler.NewGroup(handler.GroupConfig{})
		srv := startLines(t, 4, joining(g))
		peers := open(srv, 8)
		var wg sync.WaitGroup
		for i := range senders {
			l := srv.Loops()[i%4]
			wg.Go(func() {
				for n := range each {
					say := func() { g.Broadcast(fmt.Appendf(nil, "%d:%d", i, n)) }
					if i < 4 {
						l.Post(say)
					} else {
						say()
					}
				}
			})
		}
		wg.Wait()
		testkit.Pass(0)
		all := peers[0].Received()
		for _, p := range peers[1:] {
			wantReceived(t, p, all)
		}
		var next [senders]int
		for line := range strings.Lines(all) {
			var i, n int
			fmt.Sscanf(line, "%d:%d", &i, &n)
			if n != next[i] {
				t.Fatalf("sender %d: message %d came where %d was due", i, n, next[i])
			}
			next[i]++
		}
		if want := [senders]int{each, each, each, each, each, each, each, each}; next != want {
			t.Errorf("messages by sender: %v", next)
		}
	})
}

// A broadcast keeps its place among what is posted and told, and does not run inline.
func TestGroupOrderWithTell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := startLines(t, 1, joining(g))
		p := srv.Open()
		srv.Do(0, func(l *loop.Loop) {
			for c := range l.Conns() {
				c.Ref().Tell(func(c *loop.Conn) { c.Send([]byte("told")) })
				g.Broadcast([]byte("broadcast"))
				g.Broadcast([]byte("again"))
				l.Post(func() { c.Send([]byte("posted")) })
				g.Broadcast([]byte("last"))
				c.Ref().Tell(func(c *loop.Conn) { c.Send([]byte("told at last")) })
				c.Send([]byte("sent"))
			}
		})
		wantReceived(t, p, "sent\ntold\nbroadcast\nagain\nposted\nlast\ntold at last\n")
	})
}
