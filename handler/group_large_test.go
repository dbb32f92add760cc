package handler_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// startCrowd starts a server of one loop, on which all but those of outside join g.
func startCrowd(t *testing.T, g *handler.Group, members int, silent func(c *loop.Conn) loop.Handler) (*looptest.Server, []*looptest.Peer) {
	joined := 0
	srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
		if joined < members {
			joined++
			g.Join(c)
		}
		return silent(c)
	})
	return srv, open(srv, members)
}

// A loop visits the members of a large group in pieces, between which others are served.
func TestLargeGroupLeavesTheLoopToOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members, each = 2000, time.Millisecond
		g := handler.NewGroup(handler.GroupConfig{})
		srv, _ := startCrowd(t, g, members, func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) })
		stranger := srv.Open()
		if err := g.Each(func(*loop.Conn) { testkit.Block(each) }); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stranger.Send("hello\n")
		for stranger.Received() == "" {
			testkit.Pass(each)
		}
		if took := time.Since(began); took > members*each/4 {
			t.Errorf("it was answered after %v; all members take %v", took, members*each)
		}
		testkit.Pass(members * each)
	})
}

// Most of a crowd leaves while the loop is in the middle of it.
func TestLargeGroupThatShrinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members, stay = 800, 5
		g := handler.NewGroup(handler.GroupConfig{})
		srv, peers := startCrowd(t, g, members, func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) })
		visited := 0
		_ = g.Each(func(*loop.Conn) { testkit.Block(time.Millisecond); visited++ })
		_ = g.Broadcast([]byte("hello"))
		for _, p := range peers[stay:] {
			p.Close()
		}
		testkit.Pass(members * time.Millisecond)
		testkit.Want(t, "Stats().Panics", srv.Stats().Panics, 0)
		testkit.Want(t, "g.Len()", g.Len(), stay)
		if visited >= members || visited < stay {
			t.Errorf("%d were visited", visited)
		}
		for _, p := range peers[:stay] {
			wantReceived(t, p, "hello\n")
		}
	})
}

// Broadcasts to a crowd that come faster than they are sent leave in one write for each member, as
// those to few do.
func TestLargeGroupSendsTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members, says = 600, 50
		g := handler.NewGroup(handler.GroupConfig{})
		srv, peers := startCrowd(t, g, members, func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) })
		resume := srv.Stall(0)
		want := ""
		for i := range says {
			_ = g.Broadcast(fmt.Append(nil, i))
			want += fmt.Sprintln(i)
		}
		resume()
		for _, p := range peers {
			wantReceived(t, p, want)
			if n := p.Writes(); n > 2 { // 32 broadcasts at a time
				t.Errorf("%d broadcasts were sent in %d writes", says, n)
			}
		}
	})
}

// A guest notes what a member has to get: broadcasts are numbered as they are made.
type guest struct {
	since int // the last one before it joined, or -1
	stays [][2]int
}

// At random members come, go, speak and are visited, while the loop is in the middle of it. Of each
// stay a member gets the broadcasts from its begin on, without a gap, and all of the last one.
func TestLargeGroupAtRandom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members, steps = 600, 300
		random := rand.New(rand.NewPCG(testkit.Seed(t, 1), 1))
		g := handler.NewGroup(handler.GroupConfig{})
		said := 0
		guests := make(map[uint64]*guest)
		srv, peers := startCrowd(t, g, members, func(c *loop.Conn) loop.Handler {
			me := &guest{}
			guests[c.ID()] = me
			return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
				switch {
				case string(msg) == "say":
					said++
					return g.Broadcast(fmt.Append(nil, said))
				case string(msg) == "visit":
					return g.Each(func(*loop.Conn) { testkit.Block(10 * time.Microsecond) })
				case g.Leave(c):
					me.stays = append(me.stays, [2]int{me.since, said})
					me.since = -1
				default:
					g.Join(c)
					me.since = said
				}
				return nil
			})
		})
		for range steps {
			p := peers[random.IntN(members)]
			_, _ = p.Write([]byte([]string{"say\n", "say\n", "visit\n", "turn\n", "turn\n", "turn\n"}[random.IntN(6)]))
			if random.IntN(4) == 0 {
				testkit.Pass(time.Duration(random.IntN(9000)) * time.Microsecond)
			}
		}
		testkit.Pass(time.Minute)
		srv.Do(0, func(*loop.Loop) {
			for i, p := range peers {
				guests[uint64(i+1)].check(t, i, strings.Fields(p.Received()), said)
			}
		})
	})
}

// check compares what a member got with its stays.
func (me *guest) check(t *testing.T, i int, got []string, said int) {
	for _, stay := range me.stays {
		for n := stay[0] + 1; n <= stay[1] && len(got) > 0 && got[0] == fmt.Sprint(n); n++ {
			got = got[1:]
		}
	}
	if me.since >= 0 {
		for n := me.since + 1; n <= said; n++ {
			if len(got) == 0 || got[0] != fmt.Sprint(n) {
				t.Fatalf("member %d, since %d: %q instead of %d", i, me.since, got, n)
			}
			got = got[1:]
		}
	}
	if len(got) > 0 {
		t.Fatalf("member %d, here %v and since %d: %q is too much", i, me.stays, me.since, got)
	}
}
