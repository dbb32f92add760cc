//go:build !386 && !s390x

package loop_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/loop"
)

// dialMPTCP connects by MPTCP, or skips the test.
func dialMPTCP(t *testing.T, addr net.Addr) *net.TCPConn {
	t.Helper()
	var d net.Dialer
	d.SetMultipathTCP(true)
	nc, err := d.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(patience))
	c := nc.(*net.TCPConn)
	if ok, err := c.MultipathTCP(); !ok || err != nil {
		t.Skipf("this kernel, or its net.mptcp.enabled, does without MPTCP: %v", err)
	}
	return c
}

// listenMPTCP returns a listener of the user's that speaks MPTCP, whatever GODEBUG says.
func listenMPTCP(t *testing.T) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(true)
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// MPTCP has queues of its own above those of its subflows, so that what a poller says of its
// sockets, and how much one read takes, is another matter than with TCP. Each byte arrives all the
// same, in small pieces and in large ones, and after the end of the client's output, too.
func TestMPTCPEcho(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		srv := &loop.Server{Listeners: []loop.Listener{{AcceptFrom: listenMPTCP(t)}}, Accept: func(c *loop.Conn) loop.Handler {
			c.OnEOF(func() {
				c.OnFlushed(c.Close)
				if c.Pending() == 0 {
					c.Close()
				}
			})
			return loop.HandlerFunc(echo)
		}}
		startWith(t, ctx, srv)
		c := dialMPTCP(t, srv.LocalAddr())
		for _, size := range []int{1, 100, 64 << 10, 64<<10 + 1, 256 << 10, 256<<10 + 1} { // buffers, and a byte more
			mustEcho(t, c, string(make([]byte, size)))
		}
		data := make([]byte, 8<<20)
		rng := rand.NewChaCha8([32]byte{4})
		rng.Read(data)
		sent := make(chan error, 1)
		go func() {
			_, err := c.Write(data)
			sent <- errors.Join(err, c.CloseWrite())
		}()
		got, err := io.ReadAll(c)
		if err := receive(t, sent, "the end of writing"); err != nil {
			t.Error(err)
		}
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d of %d bytes came back, or other ones: %v", len(got), len(data), err)
		}
		rig.HasConns(t, srv, 0)
	})
}

// Input that came while nothing was read is delivered by ResumeRead, with the end after it.
func TestMPTCPPause(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		const much = 1 << 20
		opened, closed := make(chan *loop.Conn, 1), make(chan error, 1)
		got := 0
		srv := &loop.Server{Listeners: []loop.Listener{{AcceptFrom: listenMPTCP(t)}}, NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			c.PauseRead()
			opened <- c
			return script{
				Message: func(_ *loop.Conn, msg []byte) error { got += len(msg); return nil },
				Close:   func(_ *loop.Conn, err error) { closed <- err },
			}
		}}
		startWith(t, ctx, srv)
		nc := dialMPTCP(t, srv.LocalAddr())
		c := receive(t, opened, "Accept")
		go func() {
			_, _ = nc.Write(make([]byte, much))
			_ = nc.Close()
		}()
		for range 20 {
			_ = srv.Loops()[0].Post(c.ResumeRead)
			_ = srv.Loops()[0].Post(c.PauseRead)
		}
		_ = srv.Loops()[0].Post(c.ResumeRead)
		if err := receive(t, closed, "OnClose"); err != io.EOF || got != much {
			t.Errorf("%d of %d bytes, then %v", got, much, err)
		}
	})
}
