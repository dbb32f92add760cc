package loop_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Whatever error ends one side of a pipe, the other side ends, too, and Done runs.
func TestPipeEndsWithAHostileError(t *testing.T) {
	for name, err := range hostileErrors() {
		var conns []*loop.Conn
		done := 0
		srv := &loop.Server{Accept: with(func(c *loop.Conn) { conns = append(conns, c) })}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p, q := srv.Open(), srv.Open()
			srv.Do(0, func(*loop.Loop) {
				loop.Pipe(conns[0], conns[1], loop.PipeConfig{Done: func(uint64, uint64, error) { done++; panic(err) }})
			})
			if p.Send("x"); q.Received() != "x" {
				t.Errorf("%s: nothing is passed on", name)
			}
			srv.Do(0, func(*loop.Loop) { conns[0].CloseWithError(err) })
			wait(2 * time.Second)
			if !p.Closed() || !q.Closed() || done != 1 || srv.Stats().Conns != 0 {
				t.Errorf("%s: closed %v, %v; Done was called %d times", name, p.Closed(), q.Closed(), done)
			}
		})
	}
}
