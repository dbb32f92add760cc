package loop_test

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A close awaits each byte of a record, and none of close_notify, which a client that has all may
// leave unread. Neither depends on the size of close_notify, which varies with the cipher suite.
func TestCloseAwaitsTheLastRecord(t *testing.T) {
	for name, cipher := range map[string]struct {
		version, suite uint16
		cryptoTLS      bool
		record         int // size of a record with two bytes of data
	}{
		"TLS 1.3":               {version: tls.VersionTLS13, record: 5 + 2 + 1 + 16},
		"TLS 1.3 of crypto/tls": {version: tls.VersionTLS13, record: 5 + 2 + 1 + 16, cryptoTLS: true},
		"GCM":                   {tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, false, 5 + 8 + 2 + 16},
		"ChaCha20":              {tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, false, 5 + 2 + 16},
		"CBC":                   {tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, false, 5 + 16 + 32},
	} {
		t.Run(name, func(t *testing.T) {
			for missing := range cipher.record + 1 {
				config := serverTLS()
				config.MaxVersion, config.CipherSuites = cipher.version, []uint16{cipher.suite}
				srv := &loop.Server{TLS: config, Codec: codec.Lines{}, Debug: loop.Debug{CryptoTLS: cipher.cryptoTLS}}
				bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
					p := srv.OpenTLS(nil)
					p.Block(1 << 20)
					tell(srv, p, func(c *loop.Conn) {
						_ = c.Send([]byte("x"))
						c.Close()
					})
					p.Ack(cipher.record - missing)
					srv.Sleep(time.Minute)
					if lost := errors.Is(p.Reason(), loop.ErrOutputLost); lost != (missing > 0) {
						t.Errorf("%d of %d bytes not acknowledged: ended %v with %v", missing, cipher.record, p.Ended(), p.Reason())
					}
				})
			}
		})
	}
}

// A close that begins after StartTLS awaits the plain text.
func TestCloseAwaitsPlainTextBeforeTLS(t *testing.T) {
	bubble(t, &loop.Server{Codec: codec.Lines{}}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(1 << 20)
		tell(srv, p, func(c *loop.Conn) {
			_ = c.Send([]byte("220 ready"))
			if err := c.StartTLS(serverTLS(), nil); err != nil {
				t.Error(err)
			}
			c.Close()
		})
		srv.Sleep(time.Minute)
		if !errors.Is(p.Reason(), loop.ErrOutputLost) {
			t.Errorf("the plain text is not acknowledged: ended %v with %v", p.Ended(), p.Reason())
		}
	})
}
