package loop_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
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

// A hook that is set while output waits, by whatever callback, is called when that is flushed.
func TestOnFlushedSetLate(t *testing.T) {
	for _, where := range []string{"OnMessage", "Tell", "timer", "other"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				called := 0
				var conn *loop.Conn
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
					set := func() { c.OnFlushed(func() { called++ }) }
					conn = c
					return loop.HandlerFunc(func(c *loop.Conn, m []byte) error {
						switch {
						case string(m) == "big":
							return c.Send(make([]byte, 100<<10))
						case where == "OnMessage":
							set()
						case where == "Tell":
							return c.Ref().Tell(func(*loop.Conn) { set() })
						case where == "timer":
							c.AfterFunc(time.Millisecond, set)
						default:
							c.Loop().AfterFunc(time.Millisecond, set)
						}
						return nil
					})
				}})
				p := srv.Open()
				p.Block(1000)
				p.Send("big")
				p.Send("set")
				srv.Sleep(10 * time.Millisecond)
				testkit.Want(t, "calls while output waits", called, 0)
				p.Unblock()
				srv.Sleep(time.Second)
				testkit.Want(t, "bytes", len(p.Received()), 100<<10)
				testkit.Want(t, "calls when it is flushed", called, 1)
				srv.Do(0, func(*loop.Loop) { testkit.Want(t, "Pending", conn.Pending(), 0) })
			})
		})
	}
}

// A hook that StartTLS's done sets is called for output that has waited for the handshake.
func TestOnFlushedSetInDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flushed := 0
		srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Accept: func(c *loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				err := c.StartTLS(serverTLS(), func() { c.OnFlushed(func() { flushed++ }) })
				return errors.Join(err, c.Send([]byte("waits")))
			})
		}})
		p := srv.Open()
		p.Send("STARTTLS\n")
		p.StartTLS(clientTLS())
		srv.Sleep(time.Second)
		testkit.Want(t, "received", p.Received(), "waits\n")
		testkit.Want(t, "calls of OnFlushed", flushed, 1)
	})
}
