//go:build unix

package handover_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A rover is a counter that never stays on a loop.
type rover struct {
	*counter
	server *loop.Server
	counts *roverCounts
	closed bool
}

type roverCounts struct{ arrived, open, twice atomic.Int64 }

func (h *rover) move(c *loop.Conn) {
	loops := h.server.Loops()
	_ = c.MoveTo(loops[(c.Loop().Index()+1)%len(loops)], func(*loop.Conn) { h.counts.arrived.Add(1) }) // it may be about to move
}

func (h *rover) OnMessage(c *loop.Conn, line []byte) error {
	h.move(c)
	return h.counter.OnMessage(c, line)
}

func (h *rover) OnClose(*loop.Conn, error) {
	if h.closed {
		h.counts.twice.Add(1)
	}
	h.closed = true
	h.counts.open.Add(-1)
}

// Connections change their loops all the time, while one server after the other takes them over: each
// of them goes on, with its state and its messages in order, and closes once.
func TestHandoverAmidMoves(t *testing.T) {
	const conns, handovers = 60, 5
	for name, engine := range map[string]loop.Engine{"gnet": loop.EngineGnet, "epoll": loop.EngineEpoll, "net": loop.EngineNet} {
		t.Run(name, func(t *testing.T) {
			var n roverCounts
			var quit atomic.Bool
			roving := func(who string) *loop.Server {
				srv := lines(who)
				srv.NumLoops, srv.Engine = 3, engine
				srv.Accept = func(c *loop.Conn) loop.Handler {
					h := &rover{counter: accept(who)(c).(*counter), server: srv, counts: &n}
					n.open.Add(1)
					c.Every(2*time.Millisecond, func() { h.move(c) })
					return h
				}
				return srv
			}
			path := filepath.Join(t.TempDir(), "s")
			srv := roving("x")
			start(t, path, srv)
			var clients sync.WaitGroup
			for range conns {
				c := dial(t, srv)
				clients.Go(func() {
					for n := 1; !quit.Load(); n++ {
						if _, err := fmt.Fprintln(c, n); err != nil {
							t.Errorf("line %d: %v", n, err)
							return
						}
						got, err := c.in.ReadString('\n')
						if want := fmt.Sprintf("x %d %d\n", n, n); got != want {
							t.Errorf("heard %q, %v; want %q", got, err, want)
							return
						}
					}
					c.Close()
				})
			}
			for range handovers {
				before := n.arrived.Load()
				testkit.Eventually(t, "all move", func() bool { return n.arrived.Load() > before+5*conns || t.Failed() })
				next := roving("x")
				if r := start(t, path, next); r.Moved != conns {
					t.Errorf("%+v, want %d moved", r, conns)
				}
				waitEnd(t, srv)
				if s := srv.Stats(); s.Conns != 0 || s.Cut != 0 || s.Timers != 0 {
					t.Errorf("the old one: %+v", s)
				}
				srv = next
			}
			quit.Store(true)
			clients.Wait()
			testkit.Eventually(t, "each has closed", func() bool { return n.open.Load() == 0 || t.Failed() })
			testkit.Want(t, "second calls of OnClose", n.twice.Load(), 0)
		})
	}
}
