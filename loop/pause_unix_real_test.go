package loop_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// What a unix peer sent before it went is kept while its connection is paused, also if it is as
// much as is read at once, and the reset is seen right after it.
func TestUnixPeerGoesWhilePaused(t *testing.T) {
	for _, size := range []int{64<<10 - 1, 64 << 10, 64<<10 + 1} {
		bothEngines(t, func(t *testing.T, ctx context.Context) {
			opened, closed, got := make(chan *loop.Conn, 1), make(chan error, 1), 0
			srv := &loop.Server{Addr: "unix://" + testkit.SocketPath(t), NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
				opened <- c
				_ = c.Send([]byte("not read to its end")) // so that the peer resets
				return script{
					Message: func(_ *loop.Conn, msg []byte) error { got += len(msg); return nil },
					Close:   func(_ *loop.Conn, err error) { closed <- err },
				}
			}}
			startWith(t, ctx, srv)
			peer, err := net.Dial("unix", srv.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(peer, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			c, paused, gone := receive(t, opened, "Accept"), make(chan struct{}), make(chan struct{})
			_ = c.Ref().Tell(func(c *loop.Conn) {
				c.PauseRead()
				close(paused)
				<-gone
			})
			<-paused
			if _, err := peer.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			peer.Close()
			close(gone)
			for range 3 { // the loop looks at its sockets in between
				done := make(chan struct{})
				_ = c.Loop().Post(func() { close(done) })
				receive(t, done, "the loop")
			}
			_ = c.Ref().Tell((*loop.Conn).ResumeRead)
			if err := receive(t, closed, "OnClose"); got != size {
				t.Errorf("%d of %d bytes were delivered, then %v", got, size, err)
			}
		})
	}
}
