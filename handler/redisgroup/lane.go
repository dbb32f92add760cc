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
	// What is published, in order for each room.
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
	room     *room                       // of a peek or catch-up; of a message that is not for all, to forget that
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
	if o.room != nil && !o.message() {
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
	// minSweep is how much must wait before what is void is swept out.
	minSweep = 256
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
	waiting int                       // in all queues
	sweepAt int                       // how many may wait until what is void is swept out
	changes map[presenceKey]*outgoing // the last one in a queue about each user
	busy    map[*worker][]*outgoing   // taken, and not done with
	closed  bool
}

// A queue is what waits of one bucket.
type queue struct {
	items []*outgoing
	at    *worker // whose turn it is in, or that has taken from it; nil: nothing waits
}

// A worker sends what one lane has for one master: what gathers while a batch is under way is the
// next one.
type worker struct {
	lane    *lane
	link    *link
	wake    chan struct{}
	server  string // identity of the server, as of the last batch that was published
	failure error  // why something has to be sent again

	turn []int // buckets that have something; guarded by the lane's mu
	size int   // of what waits or is under way; guarded by the lane's mu
}

// newLane makes the lane of which links have the worker with that index.
func newLane(h *Hub, index int) *lane {
	return &lane{
		hub: h, route: func(bucket int) *worker { return h.masters.link(bucket).workers[index] },
		queues: make([]queue, h.keys.buckets+1), sweepAt: minSweep,
		changes: make(map[presenceKey]*outgoing), busy: make(map[*worker][]*outgoing),
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
	q := &l.queues[o.bucket]
	if q.at == nil {
		l.schedule(o.bucket)
	}
	full := q.at.size > l.hub.cfg.MaxQueue
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
	if l.waiting >= l.sweepAt {
		l.sweep()
	}
	o.charge(q.at)
	q.items = append(q.items, o)
	l.waiting++
	return nil
}

// schedule lets the worker of a bucket's master take from its queue. l.mu is held.
func (l *lane) schedule(bucket int) {
	w := l.route(bucket)
	l.queues[bucket].at = w
	w.turn = append(w.turn, bucket)
	signal(w.wake)
}

// replaced reports whether o need not be queued, as it makes void what was queued last about its
// user, or says the same. l.mu is held.
func (l *lane) replaced(o *outgoing) bool {
	last := l.changes[o.who()]
	switch {
	case last == nil:
		return false
	case last.here == o.here:
	case last.retold: // Redis may know the user, or not
		last.here = o.here
	default:
		delete(l.changes, o.who())
		last.dropped = true
	}
	return true
}

// sweep drops what need not be sent any more. l.mu is held.
func (l *lane) sweep() {
	l.waiting = 0
	for i := range l.queues {
		q := &l.queues[i]
		q.items = slices.DeleteFunc(q.items, l.discard)
		l.waiting += len(q.items)
	}
	l.sweepAt = max(minSweep, 2*l.waiting)
}

// discard reports whether o is void, which ends it. l.mu is held.
func (l *lane) discard(o *outgoing) bool {
	if !o.void() {
		return false
	}
	o.charge(nil)
	return true
}

// take takes what comes first in the queues whose turn it is, and returns those queues, too.
func (l *lane) take(w *worker) (batch []*outgoing, buckets []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for weight, size := 0, 0; len(w.turn) > 0 && weight < maxBatch && size < maxBatchBytes; {
		q := &l.queues[w.turn[0]]
		n := 0
		for most := together(q.items[:min(len(q.items), maxBatch)]); n < most && weight < maxBatch && size < maxBatchBytes; n++ {
			weight += q.items[n].weight()
			size += q.items[n].size()
		}
		batch = append(batch, q.items[:n]...)
		clear(q.items[:n])
		if q.items = q.items[n:]; len(q.items) == 0 && cap(q.items) > 4*maxBatch {
			q.items = nil
		}
		l.waiting -= n
		buckets = append(buckets, w.turn[0])
		w.turn = w.turn[1:]
	}
	if len(w.turn) > 0 {
		signal(w.wake)
	}
	l.sweepAt = min(l.sweepAt, max(minSweep, 2*l.waiting))
	for _, o := range batch {
		if o.op == opUser && l.changes[o.who()] == o {
			delete(l.changes, o.who())
		}
	}
	batch = slices.DeleteFunc(batch, l.discard)
	if len(batch) > 0 {
		l.busy[w] = batch
	}
	return batch, buckets
}

// landed is called when Redis has answered, or will not, about what w has taken. It reports false
// if that was given up meanwhile.
func (l *lane) landed(w *worker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch, ok := l.busy[w]
	delete(l.busy, w)
	for _, o := range batch {
		o.charge(nil)
	}
	return ok
}

// putBack puts what has to be sent again before all else of its bucket. It returns what has waited
// there for too long.
func (l *lane) putBack(w *worker, again []*outgoing) (late []*outgoing) {
	byBucket := make(map[int][]*outgoing)
	for _, o := range again {
		byBucket[o.bucket] = append(byBucket[o.bucket], o)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return again
	}
	now := time.Now()
	for bucket, first := range byBucket {
		q := &l.queues[bucket]
		q.items = append(first, q.items...)
		l.waiting += len(first)
		for _, o := range first {
			o.charge(w)
		}
		q.items = slices.DeleteFunc(q.items, func(o *outgoing) bool {
			if o.deadline.IsZero() || now.Before(o.deadline) {
				return false
			}
			o.charge(nil)
			l.waiting--
			late = append(late, o)
			return true
		})
	}
	return late
}

// release has queues taken from again, by whoever has them by then.
func (l *lane) release(buckets []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range buckets {
		q := &l.queues[b]
		if q.at = nil; len(q.items) > 0 {
			l.schedule(b)
		}
	}
}

// reroute is the end of a worker whose master has no bucket any more.
func (l *lane) reroute(w *worker) {
	l.mu.Lock()
	turn := w.turn
	w.turn = nil
	l.mu.Unlock()
	l.release(turn)
}

// len returns how much waits or is under way.
func (l *lane) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.waiting
	for _, batch := range l.busy {
		n += len(batch)
	}
	return n
}

// close ends the lane, and returns what is left. What is under way may have been taken.
func (l *lane) close() (left []*outgoing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, batch := range l.busy {
		for _, o := range batch {
			o.unclear = true
			left = append(left, o)
		}
	}
	clear(l.busy)
	for i := range l.queues {
		left = append(left, l.queues[i].items...)
		l.queues[i].items = nil
	}
	l.waiting = 0
	return left
}

// run sends until the Hub ends, or the link is retired.
func (w *worker) run() {
	var delays backoff
	for {
		select {
		case <-w.link.ctx.Done():
			w.lane.reroute(w)
			return
		case <-w.wake:
		}
		began := time.Now()
		batch, buckets := w.lane.take(w)
		var again []*outgoing
		if len(batch) > 0 {
			var ok bool
			if again, ok = w.carry(batch); !ok {
				return
			}
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
		w.lane.release(buckets)
	}
}

// A segment is what one command does: outgoings of one bucket that are of one op, and if that is
// about users, of one room.
type segment struct {
	op    op
	items []*outgoing
	cmd   *redis.Cmd
	node  string // of opUser: the name it was told under
}

// A kind says which outgoings one command takes.
type kind struct {
	bucket  int
	op      op
	channel string // of opUser
}

func (o *outgoing) kind() kind {
	k := kind{bucket: o.bucket, op: o.op}
	if o.op == opUser {
		k.channel = o.channel
	}
	return k
}

// alone reports whether each outgoing has a command of its own.
func (k kind) alone() bool { return k.op == opPlain || k.op == opHistory || k.op == opName }

// together returns how many of a queue may go out in one batch. No room is in two of its commands,
// but for messages of plain rooms: if the first had to be sent again, it would come after the
// second.
func together(queue []*outgoing) int {
	in := make(map[string]kind)
	for i, o := range queue {
		now := o.kind()
		if now.alone() || o.dropped {
			continue
		}
		if before, ok := in[o.channel]; ok && before != now {
			return i
		}
		in[o.channel] = now
	}
	return len(queue)
}

// segments divides a batch into commands. The order of what is of one room stays, as together has
// seen to it that a room is in one command.
func segments(batch []*outgoing) (all []*segment) {
	open := make(map[kind]*segment)
	for _, o := range batch {
		s := open[o.kind()]
		if s == nil || o.kind().alone() {
			s = &segment{op: o.op}
			all = append(all, s)
			open[o.kind()] = s
		}
		s.items = append(s.items, o)
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
