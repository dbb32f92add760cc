package loop_test

import (
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A user who resumes reading does not end the hold of a pipe whose other side takes nothing, and
// neither does that side, when it takes something, end a user's pause.
func TestPipeAndPauses(t *testing.T) {
	const piece, rest = 16 << 10, 20
	var conns []*loop.Conn
	srv := &loop.Server{Accept: with(func(c *loop.Conn) { conns = append(conns, c) })}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		srv.Do(0, func(*loop.Loop) { loop.Pipe(conns[0], conns[1], loop.PipeConfig{}) })
		q.Block(0)
		for range rest {
			p.Send(strings.Repeat("x", piece))
			tell(srv, p, (*loop.Conn).ResumeRead)
		}
		tell(srv, q, func(c *loop.Conn) {
			if n := c.Pending(); n > 64<<10+piece {
				t.Errorf("%d bytes wait in the side that takes nothing", n)
			}
		})

		tell(srv, p, (*loop.Conn).PauseRead)
		q.Unblock()
		got := len(q.Received())
		if got > 64<<10+piece {
			t.Errorf("%d bytes were passed on, though reading is paused", got)
		}
		tell(srv, p, (*loop.Conn).ResumeRead)
		if got += len(q.Received()); got != rest*piece {
			t.Errorf("%d bytes arrived, want %d", got, rest*piece)
		}
	})
}
