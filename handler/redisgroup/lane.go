package redisgroup

import (
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// An op is what an outgoing asks of Redis.
type op byte

const (
	// Publishing, in order for each room: one command for all of a bucket, but for plain rooms.
	opPlain   op = iota // a message of a plain room
	opOrdered           // a message of an ordered room
	opPeek              // where an ordered room stands, in order with what is published to it
	opUser              // a user has come to an ordered room, or has gone

	// What is asked besides.
	opCatchUp // what an ordered room has missed
	opHistory // the past, for one who joins
	opName    // a question about a name, see claim.lua
)

// An outgoing is something that Redis is to be told or asked.
type outgoing struct {
	place
	op       op
	seq      uint64
	data     []byte                      // a message, or the name of a user
	room     *room                       // of a peek or catch-up
	join     *joining                    // of a history
	question *question                   // about a name
	done     func(p Position, err error) // of an ordered message

	deadline time.Time // of messages and histories
	server   string    // what the room knows of its stream, see order
	next     string
	unclear  bool     // an earlier attempt may have been taken
	sentTo   string   // identity of the server that got it first
	sentIn   uint64   // number of the first command that had it
	refusals int      // how often Redis has refused it, if it is tried again after that
	from     Position // of a catch-up: what the room has
	here     bool     // of a user
	retold   bool     // of a user: Redis may know already
	dropped  bool     // it need not be sent any more; guarded by the lane's mu
	charged  *worker  // whose size counts it; guarded by the lane's mu
}

// size is what o takes of MaxQueue.
func (o *outgoing) size() int {
	n := len(o.data) + len(o.channel) + 256
	if o.room != nil {
		n += 768 // the room, which nobody else may need any more
	}
	return n
}

// weight is what o takes of maxBatch: the answers to a batch are in memory together.
func (o *outgoing) weight() int {
	if o.op == opHistory {
		return maxBatch / 64
	}
	return 1
}

// message reports whether somebody has said o, who is told if it cannot be queued.
func (o *outgoing) message() bool { return o.op <= opOrdered }

// void reports whether o need not be sent any more. The lane's mu is held.
func (o *outgoing) void() bool {
	switch o.op {
	case opPeek, opCatchUp:
		return o.dropped || o.room.forgotten.Load()
	case opHistory:
		return o.join.gone.Load()
	}
	return o.dropped
}

// A presenceKey is a user in a room.
type presenceKey struct{ channel, user string }

func (o *outgoing) who() presenceKey { return presenceKey{o.channel, string(o.data)} }

const (
	maxBatch      = 512
	maxBatchBytes = 1 << 20
	// minSweep is how much must wait in a queue before what is void is swept out.
	minSweep = 32
	// gather is the least time from the begin of a batch of several outgoings to that of the next.
	// One that comes alone leaves at once.
	gather = 2 * time.Millisecond
)

// A lane carries outgoings to Redis. Those of a bucket keep their order: they wait in its queue,
// and one worker at a time takes from it, that of the master that has the bucket by then.
type lane struct {
	hub   *Hub
	route func(bucket int) *worker

	mu      sync.Mutex
	queues  []queue
	changes map[presenceKey]*outgoing // the last one in a queue about each user
	closed  bool
}

// A queue is what waits of one bucket.
type queue struct {
	items   []*outgoing
	sweepAt int // how many may wait until what is void is swept out
	taker   *worker
	taken   []*outgoing // by it, and under way
}

// A worker sends what one lane has for one master: what gathers while a batch is under way is the
// next one.
type worker struct {
	lane    *lane
	link    *link
	wake    chan struct{}
	server  string // identity of the server, as of the last batch that was published
	failure error  // why something has to be sent again

	// The lane's mu guards the rest.
	taken []int // buckets that it has taken from
	next  int   // the bucket that comes first in the next batch
	size  int   // of what waits or is under way
}

// newLane makes the lane of which links have the worker with that index.
func newLane(h *Hub, index int) *lane {
	return &lane{
		hub: h, route: func(bucket int) *worker { return h.masters.link(bucket).workers[index] },
		queues: make([]queue, h.keys.buckets+1), changes: make(map[presenceKey]*outgoing),
	}
}

func newWorker(l *lane, at *link) *worker {
	return &worker{lane: l, link: at, wake: make(chan struct{}, 1)}
}

// charge has o count for w, or for nobody.
func (o *outgoing) charge(w *worker) {
	if o.charged != nil {
		o.charged.size -= o.size()
	}
	if o.charged = w; w != nil {
		w.size += o.size()
	}
}

// add queues o. Only messages are refused with ErrQueueFull; all else is bounded by the number of
// members, as what is void is swept out, and users who come and go again while the queue is full
// are not told.
func (l *lane) add(o *outgoing) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	q, w := &l.queues[o.bucket], l.route(o.bucket)
	full := w.size > l.hub.cfg.MaxQueue
	if full && o.message() {
		l.hub.stats.refused.Add(1)
		return ErrQueueFull
	}
	if o.op == opUser {
		if full && l.replaced(o) {
			return nil
		}
		l.changes[o.who()] = o
	}
	if len(q.items) >= max(minSweep, q.sweepAt) {
		q.items = slices.DeleteFunc(q.items, l.discard)
		q.sweepAt = 2 * len(q.items)
	}
	o.charge(w)
	q.items = append(q.items, o)
	if q.taker == nil {
		signal(w.wake)
	}
	return nil
}

// replaced reports whether o need not be queued, as it makes void what was queued last about its
// user, or says the same. l.mu is held.
func (l *lane) replaced(o *outgoing) bool {
	last := l.changes[o.who()]
	switch {
	case last == nil:
		return false
	case last.here == o.here || last.retold: // Redis may know the user, or not
		last.here = o.here
	default:
		delete(l.changes, o.who())
		last.dropped = true
	}
	return true
}

// discard reports whether o is void, which ends it. l.mu is held.
func (l *lane) discard(o *outgoing) bool {
	if !o.void() {
		return false
	}
	o.charge(nil)
	return true
}

// take takes what comes first in the queues that are w's, which nobody else takes from until they
// are released.
func (l *lane) take(w *worker) (batch []*outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	weight, size := 0, 0
	first := w.next
	for i := range l.queues {
		bucket := (first + i) % len(l.queues)
		q := &l.queues[bucket]
		if q.taker != nil || len(q.items) == 0 || l.route(bucket) != w {
			continue
		}
		n := 0
		for ; n < len(q.items) && weight < maxBatch && size < maxBatchBytes; n++ {
			o := q.items[n]
			weight += o.weight()
			size += o.size()
			if o.op == opUser && l.changes[o.who()] == o {
				delete(l.changes, o.who())
			}
		}
		if n == 0 { // the batch is full
			w.next = bucket
			signal(w.wake)
			break
		}
		q.taker, w.taken = w, append(w.taken, bucket)
		q.taken = slices.DeleteFunc(slices.Clone(q.items[:n]), l.discard)
		batch = append(batch, q.taken...)
		clear(q.items[:n])
		if q.items = q.items[n:]; len(q.items) == 0 && cap(q.items) > 4*maxBatch {
			q.items = nil
		}
		q.sweepAt = min(q.sweepAt, 2*len(q.items))
	}
	return batch
}

// landed is called when Redis has answered, or will not, about what w has taken. It reports false
// if that was given up meanwhile.
func (l *lane) landed(w *worker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, bucket := range w.taken {
		q := &l.queues[bucket]
		for _, o := range q.taken {
			o.charge(nil)
		}
		q.taken = nil
	}
	return !l.closed
}

// putBack puts what has to be sent again before all else of its bucket. It returns what has waited
// there for too long.
func (l *lane) putBack(w *worker, again []*outgoing) (late []*outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return again
	}
	first := make(map[int][]*outgoing)
	for _, o := range again {
		first[o.bucket] = append(first[o.bucket], o)
		o.charge(w)
	}
	now := time.Now()
	for bucket, items := range first {
		q := &l.queues[bucket]
		q.items = slices.DeleteFunc(append(items, q.items...), func(o *outgoing) bool {
			if o.deadline.IsZero() || now.Before(o.deadline) {
				return false
			}
			o.charge(nil)
			late = append(late, o)
			return true
		})
	}
	return late
}

// release has the queues that w has taken from taken from again, by whoever has them by then.
func (l *lane) release(w *worker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, bucket := range w.taken {
		q := &l.queues[bucket]
		if q.taker = nil; len(q.items) > 0 {
			signal(l.route(bucket).wake)
		}
	}
	w.taken = nil
}

// len returns how much waits or is under way.
func (l *lane) len() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.queues {
		n += len(l.queues[i].items) + len(l.queues[i].taken)
	}
	return n
}

// close ends the lane, and returns what is left. What is under way may have been taken.
func (l *lane) close() (left []*outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for i := range l.queues {
		q := &l.queues[i]
		for _, o := range q.taken {
			o.unclear = true
		}
		left = append(append(left, q.taken...), q.items...)
		q.taken, q.items = nil, nil
	}
	return left
}

// run sends until the Hub ends, or the link is retired.
func (w *worker) run() {
	var delays backoff
	for {
		select {
		case <-w.link.ctx.Done():
			return
		case <-w.wake:
		}
		began := time.Now()
		batch := w.lane.take(w)
		again, ok := w.carry(batch)
		if !ok {
			return
		}
		if len(again) == 0 {
			delays.reset()
			if d := gather - time.Since(began); len(batch) > 1 && d > 0 {
				time.Sleep(d)
			}
		} else {
			w.giveUp(w.lane.putBack(w, again))
			if !w.lane.hub.pause(delays.next()) {
				return
			}
		}
		w.lane.release(w)
	}
}

// A segment is what one command does: one outgoing that is alone, or those of one bucket that are
// not.
type segment struct {
	op    op // of the first
	items []*outgoing
	cmd   *redis.Cmd
	node  string // under which users are told of
}

// alone reports whether o has a command of its own.
func (o *outgoing) alone() bool { return o.op == opPlain || o.op == opHistory || o.op == opName }

// segments divides a batch into commands.
func segments(batch []*outgoing) (all []*segment) {
	shared := make(map[int]*segment)
	for _, o := range batch {
		s := shared[o.bucket]
		if s == nil || o.alone() {
			s = &segment{op: o.op}
			all = append(all, s)
		}
		if s.items = append(s.items, o); !o.alone() {
			shared[o.bucket] = s
		}
	}
	return all
}

// overtaken reports whether a later message of its plain room was taken, and this one was not: to
// send it again would change their order.
func overtaken(all []*segment, i int) bool {
	s := all[i]
	return s.op == opPlain && s.cmd.Err() != nil && slices.ContainsFunc(all[i+1:], func(o *segment) bool {
		return o.op == opPlain && o.items[0].channel == s.items[0].channel && o.cmd.Err() == nil
	})
}
