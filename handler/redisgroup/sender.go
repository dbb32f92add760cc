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

// An op says what a request is.
type op byte

const (
	opPlain   op = iota // a message of a plain room
	opOrdered           // a message of an ordered room
	opPeek              // where an ordered room stands, in order with what is published to it
	opUser              // a user has come to an ordered room, or has gone
	opQuery             // a query, on a sender of queries
)

// A request is a message, news of a user, or a query for Redis.
type request struct {
	place
	op       op
	seq      uint64
	data     []byte                      // a message, or the name of a user
	done     func(p Position, err error) // of an ordered message
	room     *room                       // of a peek
	query    query                       // of opQuery
	deadline time.Time                   // zero: it is tried for ever
	cmd      *redis.Cmd                  // which was sent for it, maybe for others, too; nil: none was needed

	unclear bool   // of an ordered message: an earlier attempt may have been taken
	sentTo  string // identity of the server that got it first
	sentIn  uint64 // number of the first command that had it

	here    bool // of a user
	bounded bool // it is refused with ErrQueueFull
}

// A query is a script that is run for somebody.
type query interface {
	command() (s *onredis.Script, keys []string, args []any) // nil: there is nothing to ask
	answered(cmd *redis.Cmd) error                           // an error has it asked again
	refuse(err error)                                        // there will be no answer
	void() bool                                              // nobody waits for the answer
}

// size is what o takes of Config.MaxQueue.
func (o *request) size() int64 {
	n := len(o.data) + len(o.channel) + 256
	if o.room != nil {
		n += 768 // the room, which nobody else may need any more
	}
	return int64(n)
}

// isMessage reports whether o is a message: its sender gets an error if it cannot be queued.
func (o *request) isMessage() bool { return o.op <= opOrdered }

const (
	maxBatch      = 512
	queryWeight   = 8 // of a query, in maxBatch: answers are in memory together
	maxBatchBytes = 1 << 20
	// minSweep is how much must wait in a sender before what is void is swept out.
	minSweep = 32
	// gather is the least time from the begin of a batch of several requests to that of the next.
	// One that comes alone leaves at once.
	gather = 2 * time.Millisecond
)

// A sender carries to Redis what one bucket has to publish, or to ask, in its order. The next batch
// is all that gathers while one is under way, after what has to be sent again. It has a goroutine
// while something waits.
type sender struct {
	hub    *Hub
	bucket int

	mu      sync.Mutex
	load    int64 // bytes of the sender that wait, or are under way
	items   []*request
	sweepAt int // how many may wait until what is void is swept out
	flight  int // how many are under way
	running bool

	// The sender's goroutine has the rest.
	server     string    // identity of the server, see append.lua
	number     uint64    // of the last command that published, see publish.lua
	introduced time.Time // when there was a receipt for sure
	node       string    // in whose name the last command had news of users
	failure    error     // why something has to be sent again
	whole      bool      // scripts are sent whole, as Redis does not know them
}

// newSenders makes one for each bucket.
func newSenders(h *Hub) []*sender {
	senders := make([]*sender, h.keys.buckets+1)
	for bucket := range senders {
		senders[bucket] = &sender{hub: h, bucket: bucket}
	}
	return senders
}

// add queues o. Messages, users who come and claims are bounded by Config.MaxQueue; all else by the
// number of members, of users who have come and of names, as what is void is swept out.
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

// full reports whether Config.MaxQueue is used up. A server that is away does not use up the share
// of other buckets. l.mu is held.
func (l *sender) full() bool {
	limit := int64(l.hub.cfg.MaxQueue)
	return l.hub.load.Load() > limit && l.load > limit/int64(l.hub.keys.buckets+1)
}

// charge counts bytes that wait. l.mu is held.
func (l *sender) charge(n int64) {
	l.load += n
	l.hub.load.Add(n)
}

// sweep drops what is void. l.mu is held.
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

// take takes the next batch. Without one the sender's goroutine ends.
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
	l.running, l.flight = n > 0, n
	return batch
}

// landed is called when a batch is done with, but for what has to be sent again. It returns what
// has waited for too long, and once the Hub is closed all that is left.
func (l *sender) landed(batch, again []*request) (late []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range batch {
		l.charge(-o.size())
	}
	for _, o := range again {
		l.charge(o.size())
	}
	l.flight = 0
	now, closed := time.Now(), l.hub.ctx.Err() != nil
	if len(again) == 0 && !closed {
		return nil
	}
	l.items = slices.DeleteFunc(append(again, l.items...), func(o *request) bool {
		if !closed && (o.deadline.IsZero() || now.Before(o.deadline)) {
			return false
		}
		l.charge(-o.size())
		late = append(late, o)
		return true
	})
	return late
}

// len returns how much waits or is under way.
func (l *sender) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.items) + l.flight
}

// run sends until nothing waits, or the Hub is closed.
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
			l.hub.pause(delays.next())
		} else {
			delays, l.failure = 0, nil
			if len(batch) > 1 {
				time.Sleep(gather - time.Since(began))
			}
		}
	}
}

// giveUp ends what is not tried any more.
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

// exchange sends a batch in one round trip. A message of a plain room and a query are a command
// each, and all that is for ordered rooms is one. An error is about all of it.
func (l *sender) exchange(batch []*request) error {
	ctx := l.hub.ctx
	client, err := l.hub.master(l.bucket)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsent, err)
	}
	if err := l.introduce(client, batch); err != nil {
		return fmt.Errorf("%w: %w", errUnsent, err)
	}
	pipe := client.Pipeline()
	var ordered []*request
	for _, o := range batch {
		switch o.op {
		case opPlain:
			o.cmd = redis.NewCmd(ctx, l.hub.command, o.channel, o.data)
			_ = pipe.Process(ctx, onredis.Once{Cmd: o.cmd}) // it waits for Exec
		case opQuery:
			o.cmd = nil
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
	if onredis.Await(ctx, func() error {
		_, _ = pipe.Exec(ctx) // each command has its own error; the client has timeouts
		return nil
	}) != nil {
		return ErrUncertain // the Hub is closed
	}
	return nil
}

// settle tells those who wait what the answers mean for them, and returns what has to be sent
// again.
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
			l.hub.count(&l.hub.stats.Published)
		case o.overtaken(batch[i+1:]): // sent again it would come after a later one
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

// overtaken reports whether Redis has taken one of later, which is of the same plain room.
func (o *request) overtaken(later []*request) bool {
	return slices.ContainsFunc(later, func(p *request) bool {
		return p.op == opPlain && p.channel == o.channel && p.cmd.Err() == nil
	})
}

// retry adds to again those of items that may be tried again, and does what err asks for.
func (l *sender) retry(again, items []*request, err error) []*request {
	what := classify(err)
	l.failure = err
	switch {
	case redis.HasErrorPrefix(err, "NOSCRIPT"):
		l.whole = true
	case redis.HasErrorPrefix(err, "NOLEASE"):
		signal(l.hub.renewer.wake)
	case what != refused:
		l.hub.reload() // its bucket may have gone elsewhere
	}
	for _, o := range items {
		switch {
		case o.op == opQuery || what == later || what == unclear && o.op != opPlain:
			o.unclear = o.unclear || what == unclear
			again = append(again, o)
		case o.unclear: // another attempt may have been taken
			l.hub.abandon(o, fmt.Errorf("%w: %w", ErrUncertain, err))
		default:
			l.hub.abandon(o, err)
		}
	}
	return again
}

// refusedWait is when something is tried again that Redis has refused.
const refusedWait = time.Second

// abandon gives up what Redis has not taken, and says so. Peeks and news of users are tried again
// after a while: until a peek is answered its room takes nothing.
func (h *Hub) abandon(o *request, err error) {
	if o.isMessage() {
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
