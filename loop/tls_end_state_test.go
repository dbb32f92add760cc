package loop_test

import (
	"testing"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Conn.TLS returns the result of the handshake until OnClose has returned, whichever side closes
// the connection, and how.
func TestTLSStateInOnClose(t *testing.T) {
	for name, end := range map[string]func(p *looptest.Peer){
		"close": (*looptest.Peer).Close, "half": (*looptest.Peer).CloseWrite, "reset": (*looptest.Peer).Reset,
		"bye": func(p *looptest.Peer) { p.Send("bye") },
	} {
		t.Run(name, func(t *testing.T) {
			var known []bool
			srv := &loop.Server{TLS: serverTLS(), Accept: func(*loop.Conn) loop.Handler {
				return script{
					Message: func(c *loop.Conn, _ []byte) error { c.Close(); return nil },
					Close: func(c *loop.Conn, _ error) {
						_, ok := c.TLS()
						known = append(known, ok)
					},
				}
			}}
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.StartTLS(clientTLS())
				end(p)
				srv.Sleep(0)
				if len(known) != 1 || !known[0] {
					t.Errorf("known in OnClose: %v", known)
				}
			})
		})
	}
}
