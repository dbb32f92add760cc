package redisgroup

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// An op is the kind of a request.
type op byte

const (
	opPlain   op = iota // a message of a plain room
	opOrdered           // a message of an ordered room
	opPeek              // the end of an ordered room's stream, in order with its messages
	opUser              // a user has joined or left an ordered room
	opQuery             // a query, on a query sender
)

// A request is a message, a change of presence, or a query for Redis.
type request struct {
	place
	op       op
	seq      uint64
	data     []byte                      // a message, or the name of a user
	done     func(p Position, err error) // of an ordered message
	room     *room                       // of a peek
	query    query                       // of opQuery
	deadline time.Time                   // zero: it is retried without limit
	cmd      *redis.Cmd                  // the command with it, perhaps with others; nil: none was needed

	over    bool   // of a message: its sender has the result, and gets no other
	unclear bool   // Redis may have accepted an earlier attempt, or accepts it now
	sentTo  string // identity of the server to which it was first sent
	sentIn  uint64 // number of the first command that contained it

	here    bool // of a user: present
	bounded bool // it may be refused with ErrQueueFull
}

// A query is a script that is run for a caller.
type query interface {
	command() (s *onredis.Script, keys []string, args []any) // nil: nothing to query
	answered(cmd *redis.Cmd) error                           // an error repeats the query
	refuse(err error)                                        // there will be no answer
	void() bool                                              // nobody waits for the answer
}

// size is the share of o in Config.MaxQueue.
func (o *request) size() int64 {
	n := len(o.data) + len(o.channel) + 256
	if o.room != nil {
		n += 768 // the room, which nobody else may need any more
	}
	return int64(n)
}

// isMessage reports whether o is a message, whose sender gets an error if it cannot be queued.
func (o *request) isMessage() bool { return o.op <= opOrdered }

const (
	maxBatch      = 512
	queryWeight   = 8 // of a query, in maxBatch: its answers are in memory together
	maxBatchBytes = 1 << 20
	// overdueEvery is how often a sender that waits for Redis looks for deadlines.
	overdueEvery = 50 * time.Millisecond
	// minSweep is how many requests are queued before void ones are removed.
	minSweep = 32
	// gather is the minimum time between the starts of two batches of several requests. A single
	// request is sent at once.
	gather = 2 * time.Millisecond
)

// A sender sends the messages or the queries of one bucket to Redis, in order. Requests that arrive
// while a batch is in flight form the next batch, after those that must be sent again. The sender
// has a goroutine while requests are queued.
type sender struct {
	hub    *Hub
	bucket int

	mu      sync.Mutex
	load    int64 // bytes of this sender that are queued or in flight
	items   []*request
	sweepAt int // the length at which void requests are removed
	running bool
	// batch is in flight. Only the sender's goroutine changes it.
	batch []*request

	// The sender's goroutine owns the rest.
	server     string    // identity of the server, see append.lua
	number     uint64    // of the last publishing command, see publish.lua
	introduced time.Time // when the receipt was last known to exist
	node       string    // the node name of the last command with a change of presence
	failure    error     // why requests must be sent again
	whole      bool      // scripts are sent in full because Redis does not know them
	sent       bool      // Redis may have got the batch
}

// newSenders returns a sender for each bucket.
func newSenders(h *Hub) []*sender {
	senders := make([]*sender, h.keys.buckets+1)
	for bucket := range senders {
		senders[bucket] = &sender{hub: h, bucket: bucket}
	}
	return senders
}

// add queues o. Config.MaxQueue bounds messages, arrivals and claims. The number of members, of
// present users and of names bounds all others, because void requests are removed.
func (l *sender) add(o *request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hub.ctx.Err() != nil {
		return ErrClosed
	}
	if o.bounded && l.full() {
		return ErrQueueFull
	}
	if len(l.items) >= max(minSweep, l.sweepAt) {
		l.sweep()
	}
	l.charge(o.size())
	l.items = append(l.items, o)
	if !l.running {
		l.running = true
		l.hub.sending.Go(l.run)
	}
	return nil
}

// full reports whether Config.MaxQueue is exhausted. An unreachable server does not use up the
// share of other buckets. l.mu is held.
func (l *sender) full() bool {
	limit := int64(l.hub.cfg.MaxQueue)
	return l.hub.load.Load() > limit && l.load > limit/int64(l.hub.keys.buckets+1)
}

// charge counts queued bytes. l.mu is held.
func (l *sender) charge(n int64) {
	l.load += n
	l.hub.load.Add(n)
}

// sweep removes void requests. l.mu is held.
func (l *sender) sweep() {
	l.items = slices.DeleteFunc(l.items, func(o *request) bool {
		void := o.op == opPeek && o.room.forgotten.Load() || o.op == opQuery && o.query.void()
		if void {
			l.charge(-o.size())
		}
		return void
	})
	l.sweepAt = 2 * len(l.items)
}

// take returns the next batch. If there is none, the sender's goroutine ends.
func (l *sender) take() (batch []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep()
	n, weight, size := 0, 0, int64(0)
	for ; n < len(l.items) && weight < maxBatch && size < maxBatchBytes; n++ {
		if o := l.items[n]; o.op == opQuery {
			weight += queryWeight
		} else {
			weight++
			size += o.size()
		}
	}
	batch = slices.Clone(l.items[:n])
	if l.items = slices.Delete(l.items, 0, n); len(l.items) == 0 {
		l.items = nil
	}
	l.running, l.batch, l.sent = n > 0, batch, false
	return batch
}

// landed is called when a batch is finished, except for the requests in again. It returns the
// requests that have timed out, and all remaining ones once the Hub is closed.
func (l *sender) landed(batch, again []*request) (late []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range batch {
		l.charge(-o.size())
	}
	for _, o := range again {
		l.charge(o.size())
	}
	l.batch = nil
	now, closed := time.Now(), l.hub.ctx.Err() != nil
	if len(again) == 0 && !closed {
		return nil
	}
	l.items = slices.DeleteFunc(append(again, l.items...), func(o *request) bool {
		if !closed && !o.late(now) {
			return false
		}
		l.charge(-o.size())
		late = append(late, o)
		return true
	})
	return late
}

// len returns the number of requests that are queued or in flight.
func (l *sender) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.items) + len(l.batch)
}

// await waits for f, or until the Hub is closed. Meanwhile it gives up messages whose deadline
// passes, even those in flight: the client may wait for longer.
func (l *sender) await(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	tick := time.NewTicker(overdueEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-l.hub.ctx.Done():
			return l.hub.ctx.Err()
		case <-tick.C:
			l.giveUp(l.overdue())
		}
	}
}

// overdue returns the requests whose deadline has passed. They leave the queue. Those in flight
// remain in the batch.
func (l *sender) overdue() (late []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for _, o := range l.batch {
		if !o.over && o.late(now) {
			o.unclear = o.unclear || l.sent
			late = append(late, o)
		}
	}
	l.items = slices.DeleteFunc(l.items, func(o *request) bool {
		if !o.late(now) {
			return false
		}
		l.charge(-o.size())
		late = append(late, o)
		return true
	})
	return late
}

// late reports whether the deadline of o has passed.
func (o *request) late(now time.Time) bool { return !o.deadline.IsZero() && !now.Before(o.deadline) }

// run sends until the queue is empty or the Hub is closed.
func (l *sender) run() {
	var delays backoff
	for {
		began := time.Now()
		batch := l.take()
		if len(batch) == 0 {
			return
		}
		var again []*request
		if err := l.exchange(batch); err != nil {
			again = l.retry(nil, batch, err)
		} else {
			again = l.settle(batch)
		}
		l.giveUp(l.landed(batch, again))
		if len(again) > 0 {
			delay := delays.next()
			_ = l.await(func() error { l.hub.pause(delay); return nil })
		} else {
			delays, l.failure = 0, nil
			if len(batch) > 1 {
				time.Sleep(gather - time.Since(began))
			}
		}
	}
}

// giveUp ends requests that are not retried any more.
func (l *sender) giveUp(late []*request) {
	for _, o := range late {
		err := ErrTimeout
		switch {
		case o.isMessage() && o.unclear:
			err = ErrUncertain
		case l.hub.ctx.Err() != nil:
			err = ErrClosed
		}
		if l.failure != nil {
			err = fmt.Errorf("%w: %w", err, l.failure)
		}
		if o.op == opQuery {
			o.query.refuse(err)
		} else if o.isMessage() {
			l.hub.abandon(o, err)
		}
	}
}

var (
	errUnsent = errors.New("redisgroup: nothing was sent, as the server does not answer or is not known")
	errAnswer = errors.New("redisgroup: an answer of Redis that was not expected")
)

// exchange sends a batch in one round trip. Each message of a plain room and each query is a
// command. All requests for ordered rooms share one command. An error concerns the whole batch.
func (l *sender) exchange(batch []*request) error {
	ctx := l.hub.ctx
	var client *redis.Client
	if err := l.await(func() (err error) { client, err = l.hub.master(l.bucket); return err }); err != nil {
		return fmt.Errorf("%w: %w", errUnsent, err)
	}
	if err := l.introduce(client, batch); err != nil {
		return fmt.Errorf("%w: %w", errUnsent, err)
	}
	pipe := client.Pipeline()
	var ordered []*request
	for _, o := range batch {
		o.cmd = nil
		if o.over { // it has been given up, and was not sent
			continue
		}
		switch o.op {
		case opPlain:
			o.cmd = redis.NewCmd(ctx, l.hub.command, o.channel, o.data)
			_ = pipe.Process(ctx, onredis.Once{Cmd: o.cmd}) // it waits for Exec
		case opQuery:
			if s, keys, args := o.query.command(); s != nil {
				o.cmd = s.Call(ctx, pipe, l.whole, false, keys, args)
			}
		default:
			ordered = append(ordered, o)
		}
	}
	if len(ordered) > 0 {
		keys, args := l.publishArgs(ordered)
		cmd := publishScript.Call(ctx, pipe, l.whole, false, keys, args)
		for _, o := range ordered {
			o.cmd = cmd
		}
	}
	l.sent = true
	if l.await(func() error {
		_, _ = pipe.Exec(ctx) // each command has its own error; the client has timeouts
		return nil
	}) != nil {
		return ErrUncertain // the Hub is closed
	}
	return nil
}

// settle reports the answers to the callers, and returns the requests that must be sent again.
func (l *sender) settle(batch []*request) (again []*request) {
	l.whole = false
	var ordered []*request
	for i, o := range batch {
		if o.cmd == nil {
			continue
		}
		err := o.cmd.Err()
		if err == nil && o.cmd.Val() == nil {
			err = errAnswer // a hook of the client has kept it from Redis
		}
		switch {
		case o.op != opPlain && o.op != opQuery:
			ordered = append(ordered, o)
			continue
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
		case o.op == opQuery:
			err = o.query.answered(o.cmd)
		case err == nil:
			l.hub.accepted(o, Position{})
		case o.overtaken(batch[i+1:]): // a retry would arrive after a later message
			l.hub.abandon(o, err)
			continue
		}
		if err != nil {
			again = l.retry(again, []*request{o}, err)
		}
	}
	if len(ordered) > 0 {
		again = l.settlePublished(again, ordered)
	}
	return again
}

// overtaken reports whether Redis has accepted a message in later of the same plain room.
func (o *request) overtaken(later []*request) bool {
	return slices.ContainsFunc(later, func(p *request) bool {
		return p.op == opPlain && p.channel == o.channel && p.cmd != nil && p.cmd.Err() == nil
	})
}

// retry adds the items that may be retried to again, and acts on err.
func (l *sender) retry(again, items []*request, err error) []*request {
	what := classify(err)
	l.failure = err
	switch {
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		l.whole = true
	case redis.HasErrorPrefix(err, "NOLEASE"):
		signal(l.hub.renewer.wake)
	case what != refused:
		l.hub.reload() // another server may have the bucket now
	}
	for _, o := range items {
		switch {
		case o.op == opQuery || what == later || what == unclear && o.op != opPlain:
			o.unclear = o.unclear || what == unclear
			again = append(again, o)
		case o.unclear: // Redis may have accepted another attempt
			l.hub.abandon(o, fmt.Errorf("%w: %w", ErrUncertain, err))
		default:
			l.hub.abandon(o, err)
		}
	}
	return again
}

// refusedWait is the delay before a request that Redis has refused is retried.
const refusedWait = time.Second

// accepted reports that Redis has accepted a message, unless it has been given up.
func (h *Hub) accepted(o *request, at Position) {
	if o.over {
		return
	}
	o.over = true
	h.count(&h.stats.Published)
	if o.done != nil {
		o.done(at, nil)
	}
}

// abandon gives up requests that Redis has not accepted, and reports that once. Peeks and changes
// of presence are retried after a delay: until a peek is answered, its room accepts nothing.
func (h *Hub) abandon(o *request, err error) {
	if o.over {
		return
	}
	if o.isMessage() {
		o.over = true
		h.count(&h.stats.Lost)
	}
	err = h.explain(err)
	if o.done != nil {
		o.done(Position{}, err)
	} else {
		h.report(&LostError{Room: o.name, Err: err})
	}
	switch o.op {
	case opPeek:
		h.after(refusedWait, func() { _ = h.publish(o) })
	case opUser:
		h.presenceRefused(o)
	}
}
