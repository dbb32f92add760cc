package realtest_test

import (
	"os"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// LOOPWHEEL_ENGINE=gnet, epoll or net runs the tests on that engine, LOOPWHEEL_CRYPTO_TLS=1 with
// crypto/tls after the handshake as well. They are read whenever a server starts: what is read before
// the tests begin go test does not see, and it would give out what it remembers of another engine.
func init() {
	engine.Default = func() string { return os.Getenv("LOOPWHEEL_ENGINE") }
	tlsconn.CryptoTLS = func() bool { return os.Getenv("LOOPWHEEL_CRYPTO_TLS") != "" }
}
