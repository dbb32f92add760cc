package loop_test

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"

	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// The conformance test of net.Conn, with a NetConn at one end or at both. A crypto/tls.Conn cannot be
// the other end, as a write that times out breaks it.
func TestNetConn(t *testing.T) {
	for name, e := range map[string]loop.Engine{"gnet": loop.EngineGnet, "epoll": loop.EngineEpoll, "net": loop.EngineNet} {
		for _, row := range []struct {
			name         string
			unix, secure bool
			both         bool
		}{
			{name: "tcp"}, {name: "tcp both", both: true}, {name: "unix both", unix: true, both: true}, {name: "tls both", secure: true, both: true},
		} {
			t.Run(name+" "+row.name, func(t *testing.T) {
				if !loop.HasEngine(e) {
					t.Skip("not on this system")
				}
				srv := &loop.Server{Engine: e, NumLoops: 1}
				if row.unix {
					srv.Addr = "unix://" + testkit.SocketPath(t)
				}
				dialer := loop.Dialer{}
				if row.secure {
					srv.TLS, dialer.TLS = serverTLS(), clientTLS()
				}
				accepted, dialed := make(chan net.Conn, 1), make(chan net.Conn, 1)
				srv.Accept = netConnTo(t, accepted)
				addr := start(t, srv)
				nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
					if row.both {
						l := srv.Loops()[0]
						_ = l.Post(func() {
							dialer.Dial(l, addr.Network()+"://"+addr.String(), func(c *loop.Conn, err error) loop.Handler {
								if err != nil {
									t.Error(err)
									close(dialed)
									return nil
								}
								return netConnTo(t, dialed)(c)
							})
						})
						c1 = <-dialed
					} else if c1, err = net.Dial(addr.Network(), addr.String()); err != nil {
						return nil, nil, nil, err
					}
					c2 = <-accepted
					return c1, c2, func() { c1.Close(); c2.Close() }, nil
				})
				// Its cases close conns whose peer has sent what nobody reads. To the drain that would
				// be a loss.
				rig.HasConns(t, srv, 0)
			})
		}
	}
}

// netConnTo returns an Accept that makes each connection a net.Conn.
func netConnTo(t *testing.T, conns chan<- net.Conn) loop.Accept {
	return func(c *loop.Conn) loop.Handler {
		nc, err := c.NetConn()
		testkit.WantErr(t, "NetConn", err, nil)
		conns <- nc
		return nil
	}
}
