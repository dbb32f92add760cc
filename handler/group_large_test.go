package handler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
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
		var g handler.Group
		srv, _ := startCrowd(t, &g, members, func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) })
		stranger := srv.Open()
		if err := g.Each(func(*loop.Conn) { time.Sleep(each) }); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stranger.Send("hello\n")
		for stranger.Received() == "" {
			time.Sleep(each)
		}
		if took := time.Since(began); took > members*each/4 {
			t.Errorf("it was answered after %v; all members take %v", took, members*each)
		}
		pass(members * each)
	})
}

// Between the pieces members come and go, by themselves or by others: each broadcast reaches those
// who were there when it was made and are still there when it comes to them, once and in order.
func TestLargeGroupChangesBetweenPieces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members, says = 1500, 40
		var g handler.Group
		srv, peers := startCrowd(t, &g, members, func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				if g.Leave(c) && c.ID()%2 == 0 {
					g.Join(c)
				}
				return nil
			})
		})
		slowly := func(*loop.Conn) { time.Sleep(10 * time.Microsecond) }
		for i := range says {
			_ = g.Broadcast(fmt.Append(nil, i))
			if i%7 == 3 {
				_ = g.Each(slowly)
			}
			if i%10 == 0 {
				_ = srv.Loops()[0].Post(func() {})
			}
		}
		for i := 0; i < members; i += 50 { // meanwhile
			peers[i].Write([]byte("leave\n"))
			peers[i+1].Close()
		}
		pass(time.Second)
		for i, p := range peers {
			got := strings.Fields(p.Received())
			for k, line := range got {
				if line != fmt.Sprint(k) {
					t.Fatalf("member %d: message %d is %s", i, k, line)
				}
			}
			if i%50 > 1 && len(got) != says {
				t.Errorf("member %d got %d of %d", i, len(got), says)
			}
		}
		_ = g.Broadcast([]byte("last"))
		pass(0)
		for i, p := range peers {
			leaves, closes := i%50 == 0 && (i+1)%2 == 1, i%50 == 1
			if got := p.Received(); (got == "last\n") != (!leaves && !closes) {
				t.Errorf("member %d got %q at last", i, got)
			}
		}
	})
}

// Broadcasts to a crowd that come faster than they are sent leave in one write for each member, as
// those to few do.
func TestLargeGroupSendsTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const members, says = 1000, 50
		var g handler.Group
		srv, peers := startCrowd(t, &g, members, func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) })
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
