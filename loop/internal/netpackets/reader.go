package netpackets

import (
	"errors"
	"hash/maphash"
	"net"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// activeFor is how long a reader that several loops share counts as active after it has read.
const activeFor = 10 * time.Millisecond

// A reader is the goroutine that reads a socket.
type reader struct {
	sock *Socket
	to   []*Packets // one, or those that share the socket
	seed maphash.Seed
	base time.Time
	read atomic.Int64 // when something was read, since base
}

func newReader(sock *Socket, to ...*Packets) *reader {
	r := &reader{sock: sock, to: to, seed: maphash.MakeSeed(), base: time.Now()}
	r.read.Store(int64(-activeFor))
	for _, s := range to {
		s.reader = r
	}
	return r
}

// active reports whether what the kernel has does not count: loops that share a socket cannot tell
// for which of them it is, and a reader that has just read something will read that, too.
func (r *reader) active() bool {
	return len(r.to) > 1 && time.Since(r.base)-time.Duration(r.read.Load()) < activeFor
}

// run passes on what comes in until the socket is closed.
func (r *reader) run() {
	batch := newBatch(batchSize)
	if r.sock.connected { // there may be many of these
		batch = newBatch(min(batchSize, 2))
	}
	for {
		all, err := r.sock.wait(batch)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if len(r.to) > 1 {
			r.read.Store(int64(time.Since(r.base)))
		}
		if err != nil && !r.to[0].put(nil, err) {
			return
		}
		for len(all) > 0 {
			to, n := r.pick(&all[0]), 1
			for n < len(all) && r.pick(&all[n]) == to {
				n++
			}
			if !to.put(all[:n], nil) {
				return
			}
			all = all[n:]
		}
	}
}

// pick returns the loop of a peer.
func (r *reader) pick(d *engine.Datagram) *Packets {
	if len(r.to) == 1 {
		return r.to[0]
	}
	return r.to[maphash.Comparable(r.seed, d.Peer)%uint64(len(r.to))]
}
