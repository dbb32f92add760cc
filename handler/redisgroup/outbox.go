package redisgroup

import (
	"slices"
	"sync"
	"time"
)

// An op is what an outgoing is for.
type op byte

const (
	opPlain   op = iota // a message of a plain room
	opOrdered           // a message of an ordered room
	opPeek              // asks where an ordered room stands, in order with what is published to it
	opCome              // a user has come to an ordered room
	opGo                // a user has gone
)

// An outgoing is something to be published.
type outgoing struct {
	place
	op       op
	seq      uint64
	data     []byte
	room     *room // of a peek; of a message that is not for all, to forget that
	known    knowledge
	deadline time.Time
	unclear  bool   // an earlier attempt may have been taken
	retold   bool   // of a user who has come: Redis may know already
	denials  int    // of a peek
	sentTo   string // identity of the server that got it first
	sentIn   uint64 // number of the first command that had it
	done     func(p Position, err error)
}

// size is what o takes of MaxQueue.
func (o *outgoing) size() int {
	n := len(o.data) + len(o.channel) + 256
	if o.op == opPeek {
		n += 768 // the room, which nobody else may need any more
	}
	return n
}

// message reports whether somebody has said o, who is told if it cannot be queued.
func (o *outgoing) message() bool { return o.op <= opOrdered }

// Bounds of what is sent at once.
const (
	maxBatch      = 512
	maxBatchBytes = 1 << 20
)

// An outbox is the queue of what is to be published at one server.
type outbox struct {
	mu      sync.Mutex
	queue   []*outgoing
	size    int // of what is queued
	max     int
	busy    int // taken, and not done with
	flying  int // size of that
	sweepAt int // how many are compacted next, if that is too much
	closed  bool
	wake    chan struct{}
}

func (b *outbox) init(limit int) { b.max, b.wake, b.sweepAt = limit, make(chan struct{}, 1), minSweep }

// add queues o. Presence and peeks are never refused: they are bounded by the number of members,
// which is what compacting a queue sees to that is too long.
func (b *outbox) add(o *outgoing) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return ErrClosed
	}
	if full := b.size+b.flying > b.max; full && o.message() {
		return ErrQueueFull
	} else if full && len(b.queue) >= b.sweepAt {
		b.compact()
	}
	b.queue = append(b.queue, o)
	b.size += o.size()
	b.signal()
	return nil
}

func (b *outbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take takes what comes first, and reports whether there may be anything ever again.
func (b *outbox) take() (batch []*outgoing, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, 0
	for n < len(b.queue) && n < maxBatch && size < maxBatchBytes {
		size += b.queue[n].size()
		n++
	}
	batch = slices.Clone(b.queue[:n])
	clear(b.queue[:n])
	b.queue = b.queue[n:]
	b.sweepAt = min(b.sweepAt, max(minSweep, 2*len(b.queue)))
	if len(b.queue) == 0 && cap(b.queue) > 4*maxBatch {
		b.queue = nil
	}
	b.size -= size
	b.busy, b.flying = n, size
	if len(b.queue) > 0 {
		b.signal()
	}
	return batch, !b.closed
}

// prepend puts what has to be tried again, or comes from another server's queue, before all else.
func (b *outbox) prepend(first []*outgoing) {
	if len(first) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(first, b.queue...)
	for _, o := range first {
		b.size += o.size()
	}
	b.signal()
}

// done is the end of what was taken.
func (b *outbox) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy, b.flying = 0, 0
}

// extract removes what f chooses, and returns it in its order.
func (b *outbox) extract(f func(o *outgoing) bool) (chosen []*outgoing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rest []*outgoing
	for _, o := range b.queue {
		if f(o) {
			chosen = append(chosen, o)
			b.size -= o.size()
		} else {
			rest = append(rest, o)
		}
	}
	b.queue = rest
	return chosen
}

func (b *outbox) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) + b.busy
}

func (b *outbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signal()
}
