package tlsconn

import (
	"container/list"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

const (
	// plainBuffer is how much plaintext is handed over at once, and cipherBuffer how much
	// ciphertext is written at once: four full records.
	plainBuffer  = 4 * maxPlain
	cipherBuffer = plainBuffer + 4*(maxRecord-maxPlain)

	// A full socket is tried again by a timer, if its engine cannot tell when it is writable.
	minRetry, maxRetry = time.Millisecond, 64 * time.Millisecond
)

// A Pool lends buffers, as framing.Pool does.
type Pool interface {
	Get(n int) []byte // an empty buffer with room for n bytes
	Put(b []byte)     // takes it back
}

// A Loop is what the connections of one event loop share. It belongs to that loop.
type Loop struct {
	cfg        LoopConfig
	plain      []byte  // what is being read
	sealed     []byte  // records that are about to be written
	chunks     []chunk // their plaintext
	handshakes map[*Conn]struct{}
	parked     list.List // of *handshake, which wait for their peers, the oldest first
	counts     Counts
}

// LoopConfig is what a Loop needs from the event loop.
type LoopConfig struct {
	// Post has f run on the loop, soon and not inline. Any goroutine may call it. False: the loop
	// has ended.
	Post func(f func()) bool

	// After has f run on the loop after d, unless it is stopped before. Both are called on the
	// loop.
	After func(d time.Duration, f func()) (stop func())

	// Clock returns the time since whenever. Later has Conn.GoOn called in a turn that is to come,
	// after a look at the sockets. Both are called on the loop.
	Clock func() time.Duration
	Later func(c *Conn)

	// Linger takes over a raw socket on which an alert was the last word: it reads on for a while,
	// and then closes it. Input that nobody reads would make the kernel reset the connection, and
	// the peer might lose the alert. paused: the socket is not read at present.
	Linger func(sock engine.Socket, paused bool)

	// Pool belongs to the loop.
	Pool Pool

	// Workers compute handshakes. Several loops may share them.
	Workers *Workers

	// MaxParked is how many handshakes may wait for the peer after its ClientHello. For one more
	// the one that waits longest fails with ErrTooManyHandshakes.
	MaxParked int

	// Panicked turns what a hook in a tls.Config, or a method of its error, has panicked with into
	// an error. It is called on the goroutine that panics, which may be the loop's.
	Panicked func(v any) error
}

// NewLoop returns what the connections of an event loop share. Until the first connection it takes
// no buffers.
func NewLoop(cfg LoopConfig) *Loop {
	return &Loop{cfg: cfg, handshakes: make(map[*Conn]struct{})}
}

// Handshakes returns how many connections are not open yet.
func (l *Loop) Handshakes() int { return len(l.handshakes) }

// Counts are how handshakes ended.
type Counts struct{ Done, Failed uint64 }

// Counts returns how those have ended that are no longer under way.
func (l *Loop) Counts() Counts { return l.counts }

// Abort fails all handshakes with err.
func (l *Loop) Abort(err error) {
	for c := range l.handshakes {
		c.Abort(err, false)
	}
}

func (l *Loop) post(f func()) bool { return l.cfg.Post(f) }
func (l *Loop) get(n int) []byte   { return l.cfg.Pool.Get(n) }
func (l *Loop) put(b []byte)       { l.cfg.Pool.Put(b) }

func (l *Loop) after(d time.Duration, f func()) (stop func()) { return l.cfg.After(d, f) }

// buffers makes the loop's two buffers.
func (l *Loop) buffers() {
	if l.plain == nil {
		l.plain = make([]byte, plainBuffer)
		l.sealed = make([]byte, 0, cipherBuffer)
	}
}

// unpark has h wait for its peer no longer.
func (l *Loop) unpark(h *handshake) {
	if h.parked != nil {
		l.parked.Remove(h.parked)
		h.parked = nil
	}
}
