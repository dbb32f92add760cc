package handler_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// If one answer is slow, a pipelining client is not read without limit: the waiting replies are
// bounded in bytes, too, whichever method makes them. All of them arrive in the end.
func TestRepliesThatWaitAreBoundedInBytes(t *testing.T) {
	for name, later := range map[string]bool{"at once": false, "by others": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const limit, size, all = 1 << 20, 10_000, 1000
				var first *handler.Reply
				answered := 0
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Codec: codec.Lines{}, Limits: loop.Limits{MaxOutbound: limit}, Accept: func(c *loop.Conn) loop.Handler {
					a := handler.NewReplies(c, handler.RepliesConfig{})
					return loop.HandlerFunc(func(*loop.Conn, []byte) error {
						if first == nil {
							first = a.Later()
							return nil
						}
						answered += size
						answer := bytes.Repeat([]byte{'x'}, size)
						if !later {
							return a.Write(answer)
						}
						a.Later().Done(answer)
						return nil
					})
				}})
				p := srv.Open()
				for range all {
					p.Send("?\n")
				}
				if answered > limit {
					t.Errorf("%d bytes wait, with a MaxOutbound of %d", answered, limit)
				}
				srv.Do(0, func(*loop.Loop) { first.Done([]byte("first")) })
				testkit.Pass(time.Minute)
				if n := len(p.Received()); n != len("first")+(all-1)*size {
					t.Errorf("%d bytes have come; closed: %v", n, p.Reason())
				}
			})
		})
	}
}
