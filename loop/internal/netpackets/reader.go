package netpackets

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxLetters and maxData are how much waits for a loop before the reader waits, too, and the
	// kernel's buffer fills: about what that has room for itself.
	maxLetters, maxData = 256, 256 << 10

	// keepData is how much room an inbox keeps.
	keepData = 64 << 10

	// blind is how long a reader that gets on may leave datagrams in the kernel, and for how long
	// it holds that the kernel had none.
	blind = 10 * time.Millisecond
)

// A reader is the goroutine of a socket.
type reader struct {
	conn  *net.UDPConn
	base  time.Time
	moved atomic.Int64 // nanoseconds since base, when it passed something on
}

func newReader(conn *net.UDPConn) *reader {
	r := &reader{conn: conn, base: time.Now()}
	r.moved.Store(int64(-blind))
	return r
}

func (r *reader) now() time.Duration     { return time.Since(r.base) }
func (r *reader) movedAt() time.Duration { return time.Duration(r.moved.Load()) }

// run passes on what comes in until the socket is closed.
func (r *reader) run(pick func(netip.AddrPort) *Packets) {
	buf := make([]byte, 1<<16)
	for {
		n, peer, err := r.conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
		to := pick(peer)
		first, full := to.inbox.put(buf[:max(n, 0)], peer, err)
		if r.moved.Store(int64(r.now())); first {
			to.loop.Execute(to.take)
		}
		for full {
			select {
			case <-to.inbox.room:
				full = to.inbox.full()
			case <-to.done:
				full = false
			case <-to.loop.Ended:
				return
			}
		}
	}
}

// An inbox is what has come for a loop that has not taken it yet.
type inbox struct {
	room chan struct{} // holds a value when it was emptied

	mu      sync.Mutex
	letters []letter
	data    []byte // of all of them, in order

	spare     []letter // what the loop has taken, and used before it takes more
	spareData []byte
}

// A letter is a datagram, or an error.
type letter struct {
	n    int
	peer netip.AddrPort
	err  error
}

// put keeps a datagram, and reports whether it is the first, so that the loop has to be told, and
// whether that must take something before more is put. An error that stays would come for ever, so
// each waits for the loop.
func (b *inbox) put(p []byte, peer netip.AddrPort, err error) (first, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first = len(b.letters) == 0
	if err != nil {
		p = nil
	}
	b.letters = append(b.letters, letter{len(p), peer, err})
	b.data = append(b.data, p...)
	return first, err != nil || b.isFull()
}

// isFull is called with b.mu held.
func (b *inbox) isFull() bool { return len(b.letters) >= maxLetters || len(b.data) >= maxData }

func (b *inbox) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isFull()
}

// empty returns all that waits. It is valid until the next call.
func (b *inbox) empty() ([]letter, []byte) {
	b.mu.Lock()
	letters, data := b.letters, b.data
	b.letters, b.data = b.spare[:0], b.spareData[:0]
	b.mu.Unlock()
	b.spare, b.spareData = letters, data
	if cap(data) > keepData {
		b.spareData = nil
	}
	select {
	case b.room <- struct{}{}:
	default: // there is a value
	}
	return letters, data
}

// holds reports whether something waits.
func (b *inbox) holds() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.letters) > 0
}
