package handler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// countingLines counts how often a message is encoded.
type countingLines struct {
	codec.Lines
	n *int
}

func (cd countingLines) AppendFrame(dst, msg []byte) ([]byte, error) {
	*cd.n++
	return cd.Lines.AppendFrame(dst, msg)
}

// startKeeping returns a server of one loop, a member that does not read, and one that does.
func startKeeping(t *testing.T, g *handler.Group, encoded *int) (srv *looptest.Server, slow, fast *looptest.Peer) {
	srv = looptest.Start(t, &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxOutbound: 1 << 20}, Codec: countingLines{n: encoded}, Accept: joining(g)})
	slow, fast = srv.Open(), srv.Open()
	slow.Block(0)
	return srv, slow, fast
}

var big = strings.Repeat("x", 1<<10)

// A slow member loses the oldest messages and stays; the others get all, and each message is
// encoded once.
func TestGroupKeepDropsTheOldest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const says, keep = 5000, 20
		g := handler.NewGroup(handler.GroupConfig{Backlog: keep})
		encoded := 0
		_, slow, fast := startKeeping(t, g, &encoded)
		for i := range says {
			if err := g.Broadcast(fmt.Appendf(nil, "%d %s", i, big)); err != nil {
				t.Fatal(err)
			}
			testkit.Pass(0)
		}
		wantOpen(t, slow)
		if n := strings.Count(fast.Received(), "\n"); n != says {
			t.Errorf("the fast member got %d", n)
		}
		if encoded != says {
			t.Errorf("%d messages were encoded %d times", says, encoded)
		}
		slow.Unblock()
		testkit.Pass(time.Second)
		lines := strings.Split(strings.TrimSpace(slow.Received()), "\n")
		first := len(lines) - keep // of those that waited
		if first < 10 || uint64(says-len(lines)) != g.Dropped() {
			t.Fatalf("the slow member got %d of %d, and %d were dropped", len(lines), says, g.Dropped())
		}
		for i, line := range lines {
			want := i
			if i >= first {
				want = says - len(lines) + i
			}
			if !strings.HasPrefix(line, fmt.Sprint(want, " ")) {
				t.Fatalf("line %d is %.10s, want %d", i, line, want)
			}
		}
		_ = g.Broadcast([]byte("now"))
		testkit.Pass(0)
		wantReceived(t, slow, "now\n")
	})
}

// Of the messages with one key only the newest waits, in the place of the first.
func TestGroupKeepTheNewestOfAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{Backlog: 5})
		encoded := 0
		srv, slow, _ := startKeeping(t, g, &encoded)
		srv.Do(0, func(l *loop.Loop) {
			for c := range l.Conns() {
				_, _ = c.Write([]byte(strings.Repeat(big, 600) + "\n"))
			}
		})
		for i := range 100 {
			for _, key := range []string{"a", "b", "c"} {
				_ = g.BroadcastKey(key, fmt.Appendf(nil, "%s=%d", key, i))
			}
			if i == 50 {
				_ = g.BroadcastKey("", []byte("plain"))
			}
		}
		testkit.Pass(0)
		slow.Unblock()
		testkit.Pass(time.Second)
		_, got, _ := strings.Cut(slow.Received(), "\n")
		if want := "a=99\nb=99\nc=99\nplain\n"; got != want {
			t.Errorf("the slow member got %q, want %q", got, want)
		}
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "a"} {
			_ = g.BroadcastKey(key, []byte(key)) // nothing waits: all pass
		}
		testkit.Pass(0)
		wantReceived(t, slow, "a\nb\nc\nd\ne\nf\ng\na\n")
	})
}

// With more keys than Keep, the oldest are dropped. A member that leaves gets none of its backlog.
func TestGroupKeepManyKeysAndLeave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := handler.NewGroup(handler.GroupConfig{Backlog: 3})
		encoded := 0
		srv, slow, fast := startKeeping(t, g, &encoded)
		fast.Block(0)
		srv.Do(0, func(l *loop.Loop) {
			for c := range l.Conns() {
				_, _ = c.Write([]byte(strings.Repeat(big, 600) + "\n"))
			}
		})
		for _, key := range []string{"a", "b", "c", "d", "b", "e", "a"} {
			_ = g.BroadcastKey(key, []byte(key))
		}
		testkit.Pass(0)
		srv.Do(0, func(l *loop.Loop) {
			for c := range l.Conns() {
				if c.ID() == 2 {
					g.Leave(c)
				}
			}
		})
		slow.Unblock()
		fast.Unblock()
		testkit.Pass(time.Second)
		_, got, _ := strings.Cut(slow.Received(), "\n")
		if want := "d\ne\na\n"; got != want {
			t.Errorf("the slow member got %q, want %q", got, want)
		}
		if _, got, _ := strings.Cut(fast.Received(), "\n"); got != "" {
			t.Errorf("who has left got %q", got)
		}
	})
}
