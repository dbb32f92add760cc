package handler_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

func TestGroupEach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{})
		srv := startLines(t, 2, joining(g))
		peers := open(srv, 5)
		// One panics, and each third leaves, while they are being visited.
		err := g.Each(func(c *loop.Conn) {
			switch c.ID() {
			case 2:
				panic("each")
			case 3:
				g.Leave(c)
			}
			c.Send(fmt.Appendf(nil, "you are %d", c.ID()))
		})
		if err != nil {
			t.Error(err)
		}
		testkit.Pass(0)
		for i, p := range peers {
			if i == 1 {
				wantReceived(t, p, "")
				var pe *loop.PanicError
				if !errors.As(p.Reason(), &pe) {
					t.Errorf("reason %v, want a panic", p.Reason())
				}
				continue
			}
			wantReceived(t, p, fmt.Sprintf("you are %d\n", i+1))
		}
		if n := g.Len(); n != 3 {
			t.Errorf("Len %d, want 3", n)
		}
		if n := srv.Stats().Panics; n != 1 {
			t.Errorf("%d panics counted", n)
		}
		wantPanic(t, "Each(nil)", func() { g.Each(nil) })
	})
}

// Each visits each remaining member exactly once, and none that has left, whichever members leave
// meanwhile.
func TestGroupEachLeaving(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 12
		for victims := range 1 << 6 {
			g := handler.NewGroup(handler.GroupConfig{})
			visits := make(map[uint64]int)
			var conns []*loop.Conn
			srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
				g.Join(c)
				conns = append(conns, c)
				return loop.HandlerFunc(echo)
			})
			open(srv, n)
			left := make(map[uint64]bool)
			g.Each(func(c *loop.Conn) {
				if visits[c.ID()]++; len(visits) != n/2 {
					return
				}
				for i := range 6 {
					if victims>>i&1 == 1 {
						g.Leave(conns[2*i])
						left[conns[2*i].ID()] = true
					}
				}
			})
			testkit.Pass(0)
			for _, c := range conns {
				if v := visits[c.ID()]; v > 1 || v == 0 && !left[c.ID()] {
					t.Fatalf("victims %06b: connection %d visited %d times", victims, c.ID(), v)
				}
			}
			srv.Stop()
		}
	})
}
