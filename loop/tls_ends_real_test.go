package loop_test

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A peer that has ended its output, by close_notify alone, and then breaks while output waits for
// it: the connection closes, though nothing more is read of it.
func TestTLSResetBehindCloseNotify(t *testing.T) {
	testkit.NeedSlow(t, "it takes 13 s")
	for name, cfg := range map[string]*tls.Config{"tcp": nil, "tls": serverTLS()} {
		t.Run(name, func(t *testing.T) {
			ended, closed := make(chan struct{}), make(chan error, 1)
			addr := start(t, &loop.Server{TLS: cfg, Accept: func(c *loop.Conn) loop.Handler {
				c.OnEOF(func() {
					_ = c.Send(make([]byte, 64<<20)) // more than the kernel takes
					close(ended)
				})
				return script{Message: echo, Close: func(_ *loop.Conn, err error) { closed <- err }}
			}})
			nc, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			raw := nc.(*net.TCPConn)
			if cfg == nil {
				err = raw.CloseWrite()
			} else if c := tls.Client(nc, clientTLS()); err == nil {
				if err = c.Handshake(); err == nil {
					err = c.CloseWrite()
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			receive(t, ended, "OnEOF")
			_ = raw.SetLinger(0)
			_ = raw.Close()
			if err := receive(t, closed, "OnClose"); err == nil {
				t.Error("closed without a reason")
			}
		})
	}
}
