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
	server  *loop.Server
	arrived *atomic.Int64
}

func (h *rover) move(c *loop.Conn) {
	loops := h.server.Loops()
	_ = c.MoveTo(loops[(c.Loop().Index()+1)%len(loops)], func(*loop.Conn) { h.arrived.Add(1) }) // it may be about to move
}

func (h *rover) OnMessage(c *loop.Conn, line []byte) error {
	h.move(c)
	return h.counter.OnMessage(c, line)
}

// Connections change their loops all the time, while one server after the other takes them over: each
// of them goes on, with its state and its messages in order, and closes once.
func TestHandoverAmidMoves(t *testing.T) {
	const conns, handovers = 60, 5
	for name, engine := range map[string]loop.Engine{"gnet": loop.EngineGnet, "epoll": loop.EngineEpoll, "net": loop.EngineNet} {
		t.Run(name, func(t *testing.T) {
			var arrived, quit atomic.Int64
			ends := make(chan error, conns*(handovers+1))
			roving := func(who string) *loop.Server {
				srv := lines(who)
				srv.NumLoops, srv.Engine = 3, engine
				srv.Accept = func(c *loop.Conn) loop.Handler {
					h := &rover{accept(who)(c).(*counter), srv, &arrived}
					h.ends = ends
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
					for n := 1; quit.Load() == 0; n++ {
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
				before := arrived.Load()
				testkit.Eventually(t, "all move", func() bool { return arrived.Load() > before+5*conns || t.Failed() })
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
			quit.Store(1)
			clients.Wait()
			testkit.Eventually(t, "all have closed", func() bool { return srv.Stats().Conns == 0 })
			testkit.Want(t, "calls of OnClose", len(ends), conns*(handovers+1))
		})
	}
}
