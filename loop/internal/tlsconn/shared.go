package tlsconn

import (
	"container/list"
	"time"

	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// A Shared is what the connections of one event loop share. It belongs to that loop.
type Shared struct {
	Counts

	cfg     SharedConfig
	plain   [plainBuffer + maxPadding]byte // plaintext of the record in hand
	small   [64]byte                       // a record of tlsrecord's own
	waiting list.List                      // of *Conn: those that wait for their peers, the oldest first
	awake   []*Conn                        // those whose records may have AEADs
	next    int                            // which of them rest looks at next
	looks   bool                           // rest is about to be called
}

// Two AEADs are more than half of what a connection of TLS 1.3 takes, and 1.5 us make one. So the
// loop looks restRound times within restTime at a part of the connections that have some, and those
// drop them that had no record since the last look.
const (
	restTime  = 8 * time.Second
	restRound = 16
)

// wake notes that c has AEADs.
func (s *Shared) wake(c *Conn) {
	if s.awake = append(s.awake, c); !s.looks {
		s.looks = true
		s.cfg.After(restTime/restRound, s.rest)
	}
	c.place = len(s.awake)
}

// forget ends that.
func (s *Shared) forget(c *Conn) {
	if c.place > 0 {
		last := len(s.awake) - 1
		s.awake[c.place-1] = s.awake[last]
		s.awake[c.place-1].place = c.place
		s.awake[last] = nil
		s.awake, c.place = s.awake[:last], 0
	}
}

func (s *Shared) rest() {
	for range (len(s.awake) + restRound - 1) / restRound {
		if s.next >= len(s.awake) {
			s.next = 0
		}
		if c := s.awake[s.next]; c.records.Rest() {
			s.forget(c)
		} else {
			s.next++
		}
	}
	if s.looks = len(s.awake) > 0; s.looks {
		s.cfg.After(restTime/restRound, s.rest)
	} else {
		s.awake = nil
	}
}

// Counts are numbers of handshakes: how they ended, and those that have begun. A server's begins with
// the first record of the ClientHello, so a silent client is none.
type Counts struct{ Done, Failed, Pending uint64 }

// SharedConfig is what a Shared needs from the event loop.
type SharedConfig struct {
	// Post runs f on the loop, soon and not inline. Any goroutine may call it. False: the loop has
	// ended.
	Post func(f func()) bool

	// After runs f on the loop after d. It is called on the loop.
	After func(d time.Duration, f func())

	// Pool belongs to the loop.
	Pool *framing.Pool

	// Workers bound the handshakes that compute. Several loops may share them.
	Workers *Workers

	// MaxWaiting is how many handshakes may wait for the peer once they have begun. For one more
	// the one that waits longest fails with ErrTooManyHandshakes.
	MaxWaiting int

	// CryptoTLS leaves all connections to crypto/tls after their handshakes.
	CryptoTLS bool

	// Panicked makes an error of a panic in a hook of a tls.Config, or in a method of its error. It
	// is called on the goroutine that panics, which may be the loop's.
	Panicked func(v any) error
}

// NewShared returns what the connections of an event loop share.
func NewShared(cfg SharedConfig) *Shared {
	cfg.CryptoTLS = cfg.CryptoTLS || testhook.CryptoTLS()
	return &Shared{cfg: cfg}
}

// extend appends p to b. Both b, which may be nil, and the result belong to the pool.
func (s *Shared) extend(b, p []byte) []byte { return append(s.grow(b, len(p)), p...) }

// grow makes room for n more bytes in b, as extend does.
func (s *Shared) grow(b []byte, n int) []byte {
	if n += len(b); n > cap(b) {
		grown := append(s.cfg.Pool.Get(max(n, 2*cap(b))), b...)
		s.cfg.Pool.Put(b)
		b = grown
	}
	return b
}

// rescue, deferred around calls of crypto/tls, makes an error of a panic. Hooks may panic, and so
// may what crypto/tls calls after the handshake (ClientSessionCache.Put, Time, Rand).
func (s *Shared) rescue(err *error) {
	if v := recover(); v != nil {
		*err = s.cfg.Panicked(v)
	}
}
