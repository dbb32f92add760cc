package loop

import (
	"crypto/tls"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/loopwheel/loopwheel/codec"
)

// A message that was delivered in shares after a reset asks for TLS in vain, and input after it is
// not delivered.
func TestStartTLSBehindAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRig(t, codec.Lines{})
		r.server.listeners[0].accept = func(*Conn) Handler {
			return handlerOf{r, func(c *Conn, msg []byte) error {
				if err := r.OnMessage(c, msg); err != nil || len(r.got) < 500 {
					return err
				}
				return c.StartTLS(&tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }}, nil)
			}}
		}
		_, s, _ := r.connect()
		s.Readable(numbered(1000))
		s.Ended(syscall.ECONNRESET)
		for turns := 0; r.err == nil && turns < 1000; turns++ {
			r.turn()
		}
		r.expect(t, 500)
		if r.err != syscall.ECONNRESET {
			t.Errorf("closed with %v", r.err)
		}
	})
}

// handlerOf is a slowRig with another OnMessage.
type handlerOf struct {
	*slowRig
	message func(c *Conn, msg []byte) error
}

func (h handlerOf) OnMessage(c *Conn, msg []byte) error { return h.message(c, msg) }
