//go:build unix

package redisgroup_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// A mover is a member of an ordered room that moves to another process with its user and position.
type mover struct {
	node *node
	user string
}

func (m *mover) OnMessage(c *loop.Conn, line []byte) error { return m.node.command(c, line) }
func (m *mover) OnClose(*loop.Conn, error)                 {}

func (m *mover) Save(c *loop.Conn) ([]byte, error) {
	o, _ := m.node.hub.Ordered("red")
	p, ok := o.Position(c)
	if !ok {
		return nil, redisgroup.ErrTimeout
	}
	return fmt.Appendf(nil, "%s %v", m.user, p), nil
}

func (m *mover) join(c *loop.Conn) loop.Handler {
	var from redisgroup.From
	if state, moved := c.Saved(); moved {
		user, p, _ := strings.Cut(string(state), " ")
		m.user = user
		from.Since, _ = redisgroup.ParsePosition(p)
	} else {
		m.user = fmt.Sprint("user", c.ID())
	}
	o, _ := m.node.hub.Ordered("red")
	if m.node.hub.Bind(c, m.user) != nil {
		return nil
	}
	o.JoinFrom(c, from, func(c *loop.Conn, a redisgroup.Arrival) {
		if a.Err != nil || a.Gap != nil {
			c.CloseWithError(a.Gap)
		}
	})
	return m
}

// takeOver starts a node that takes over from the one before, and returns it with its end.
func takeOver(t *testing.T, client redis.UniversalClient, path string) (*node, handover.Report) {
	t.Helper()
	n := startNode(t, client, mortal())
	_ = n.srv.Close() // of a node that hands over another one is the server
	_ = n.srv.Wait()
	n.srv = &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: n.srv.Codec}
	n.srv.Accept = func(c *loop.Conn) loop.Handler { return (&mover{node: n}).join(c) }
	h, err := handover.Open(t.Context(), n.srv, handover.Config{Path: path, Patience: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ending sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	ending.Go(func() {
		_ = h.Run(ctx)
		_ = n.hub.Close(context.Background())
	})
	t.Cleanup(func() { end(); ending.Wait() })
	return n, r
}

// Members of an ordered room go from one process to the next, and miss no entry, and get none twice;
// their users have never left.
func TestOrderedMoves(t *testing.T) {
	const members, handovers = 20, 3
	onAll(t, func(t *testing.T, connect func() redis.UniversalClient) {
		path := filepath.Join(t.TempDir(), "s")
		speaker, err := redisgroup.Open(t.Context(), connect(), settled())
		if err != nil {
			t.Fatal(err)
		}
		defer speaker.Close(context.Background())
		red, _ := speaker.Ordered("red")
		n, _ := takeOver(t, connect(), path)
		var clients []*client
		for range members {
			clients = append(clients, n.dial())
		}
		testkit.Eventually(t, "all are members", func() bool {
			count, err := red.Count(t.Context())
			return err == nil && count == members
		})
		stop, said := make(chan struct{}), make(chan int)
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					said <- i
					return
				case <-time.After(2 * time.Millisecond):
				}
				if err := red.Broadcast(fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			}
		}()
		for range handovers {
			time.Sleep(100 * time.Millisecond)
			if _, r := takeOver(t, connect(), path); r.Moved != members {
				t.Errorf("%+v, want %d moved", r, members)
			}
		}
		time.Sleep(1500 * time.Millisecond) // the process before has forgotten its members
		close(stop)
		total := <-said
		_ = red.Broadcast([]byte("end"))
		for _, c := range clients {
			messages, last := 0, redisgroup.Position{}
			for line := ""; !strings.HasSuffix(line, " end"); messages++ {
				line = c.hear()
				f := strings.Fields(line)
				p, err := redisgroup.ParsePosition(f[2])
				if err != nil || !last.IsZero() && (p.Epoch != last.Epoch || p.Number != last.Number+1) {
					t.Fatalf("after %v it hears %q", last, line)
				}
				if last = p; f[0] == "out" {
					t.Errorf("%q: no user has left", line)
				}
				if f[0] != "msg" {
					messages--
				}
			}
			if messages != total+1 {
				t.Errorf("a member has got %d messages of %d", messages, total+1)
			}
		}
	})
}
