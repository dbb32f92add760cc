package loop_test

import (
	"testing"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Who pauses because of what Pending says goes on, though the first write takes all.
func TestFlushedAfterPending(t *testing.T) {
	answer := make([]byte, 20_000)
	srv := &loop.Server{
		Codec: codec.Lines{},
		Accept: accepting(func(c *loop.Conn) { c.OnFlushed(c.ResumeRead) }, func(c *loop.Conn, _ []byte) error {
			_, err := c.Write(answer)
			if c.Pending() > 10_000 {
				c.PauseRead()
			}
			return err
		}),
	}
	inMemory(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("a\n", "b\nc\n")
		if got, want := len(p.Received()), 3*len(answer); got != want {
			t.Errorf("%d bytes of answers, want %d", got, want)
		}
	})
}
