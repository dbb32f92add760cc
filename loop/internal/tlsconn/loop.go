package tlsconn

import (
	"container/list"
	"time"

	"github.com/loopwheel/loopwheel/internal/framing"
)

// A Loop is what the connections of one event loop share. It belongs to that loop.
type Loop struct {
	Counts

	cfg     LoopConfig
	plain   [plainBuffer + maxPadding]byte // what is being read
	small   [64]byte                       // a record of tlsrecord's own
	waiting list.List                      // of *Conn: those that wait for their peers, the oldest first
}

// Counts are handshakes: how they ended, and those under way.
type Counts struct{ Done, Failed, Pending uint64 }

// LoopConfig is what a Loop needs from the event loop.
type LoopConfig struct {
	// Post has f run on the loop, soon and not inline. Any goroutine may call it. False: the loop
	// has ended.
	Post func(f func()) bool

	// After has f run on the loop after d. It is called on the loop.
	After func(d time.Duration, f func())

	// Pool belongs to the loop.
	Pool *framing.Pool

	// Workers bound the handshakes that compute. Several loops may share them.
	Workers *Workers

	// MaxWaiting is how many handshakes may wait for the peer once they have begun. For one more
	// the one that waits longest fails with ErrTooManyHandshakes.
	MaxWaiting int

	// CryptoTLS has crypto/tls keep all connections after their handshakes.
	CryptoTLS bool

	// Panicked turns what a hook in a tls.Config, or a method of its error, has panicked with into
	// an error. It is called on the goroutine that panics, which may be the loop's.
	Panicked func(v any) error
}

// NewLoop returns what the connections of an event loop share.
func NewLoop(cfg LoopConfig) *Loop {
	cfg.CryptoTLS = cfg.CryptoTLS || CryptoTLS()
	return &Loop{cfg: cfg}
}

// extend appends p to b, which belongs to the pool, as what is returned does. nil is empty.
func (l *Loop) extend(b, p []byte) []byte { return append(l.grow(b, len(p)), p...) }

// grow makes room for n more bytes in b, as extend does.
func (l *Loop) grow(b []byte, n int) []byte {
	if n += len(b); n > cap(b) {
		grown := append(l.cfg.Pool.Get(max(n, 2*cap(b))), b...)
		l.cfg.Pool.Put(b)
		b = grown
	}
	return b
}

// rescue, deferred around calls of crypto/tls, makes an error of a panic. Hooks may panic, and so
// may what crypto/tls calls after the handshake (ClientSessionCache.Put, Time, Rand).
func (l *Loop) rescue(err *error) {
	if v := recover(); v != nil {
		*err = l.cfg.Panicked(v)
	}
}
