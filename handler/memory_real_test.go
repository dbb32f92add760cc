package handler_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A broadcast of more than Limits.MaxBuffered in all costs no member that reads its connection:
// what it was sent is written before the next ones are sent something, and before a connection is
// closed because buffers take too much.
func TestBroadcastAboveMaxBuffered(t *testing.T) {
	for name, engine := range map[string]loop.Engine{"default": loop.EngineDefault, "epoll": loop.EngineEpoll, "net": loop.EngineNet} {
		for _, row := range []struct{ members, size, times int }{{600, 4 << 10, 3}, {600, 32 << 10, 3}, {200, 100 << 10, 1}} {
			t.Run(fmt.Sprintf("%s/%d members, %d bytes", name, row.members, row.size), func(t *testing.T) {
				group := handler.NewGroup(handler.GroupConfig{})
				srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Engine: engine, Codec: codec.Length{Max: 1 << 20}, Limits: loop.Limits{MaxBuffered: 8 << 20},
					Accept: func(c *loop.Conn) loop.Handler {
						group.Join(c)
						return loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
					}}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				must(t, srv.Start(ctx))
				var clients sync.WaitGroup
				want := int64(row.times * (4 + row.size))
				for range row.members {
					nc, err := net.Dial("tcp", srv.LocalAddr().String())
					must(t, err)
					clients.Go(func() {
						defer nc.Close()
						if n, err := io.CopyN(io.Discard, nc, want); err != nil {
							t.Errorf("a member gets %d of %d bytes: %v", n, want, err)
						}
					})
				}
				testkit.Eventually(t, "all are there", func() bool { return group.Len() == row.members })
				for range row.times {
					must(t, group.Broadcast(make([]byte, row.size)))
				}
				clients.Wait()
				if n := srv.Stats().ClosedBy["memory"]; n != 0 {
					t.Errorf("%d connections were closed for memory, want none", n)
				}
				stop()
				must(t, srv.Wait())
			})
		}
	}
}
