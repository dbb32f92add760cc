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
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("a\n", "b\nc\n")
		if got, want := len(p.Received()), 3*len(answer); got != want {
			t.Errorf("%d bytes of answers, want %d", got, want)
		}
	})
}

// Who only looks, as a page that shows all connections does, changes nothing: OnFlushed is not
// called for what left in one write.
func TestInfoDoesNotWaitForFlushed(t *testing.T) {
	flushed := 0
	srv := &loop.Server{
		Codec: codec.Lines{},
		Accept: accepting(func(c *loop.Conn) { c.OnFlushed(func() { flushed++ }) }, func(c *loop.Conn, msg []byte) error {
			err := c.Send([]byte("answer"))
			switch string(msg) {
			case "info":
				if n := c.Info().Pending; n == 0 {
					t.Error("nothing is pending")
				}
			case "pending":
				_ = c.Pending()
			}
			return err
		}),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("info\n", "info\n", "nothing\n")
		if p.Received(); flushed != 0 {
			t.Errorf("OnFlushed was called %d times", flushed)
		}
		p.Send("pending\n")
		if p.Received(); flushed != 1 {
			t.Errorf("after Pending it was called %d times", flushed)
		}
	})
}
