package rediswheel

import (
	"context"
	"crypto/rand"
	"math"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// A Handler does what tasks are for. Run calls Handle on a goroutine of its own for each task.
//
// nil means done: the task is over, or its next occurrence is scheduled. An error means that this
// attempt has failed, unless it is one of [Postpone]; see [Permanent] and [RetryAfter] too. A panic
// is an error.
//
// The context ends at the timeout of the attempt, with the cause ErrLeaseLost when Redis says that
// the task is not this worker's any more, and with the cause ErrStopping when Run has waited for
// StopTimeout. A handler that returns an error then is not blamed: the task goes to another worker,
// no attempt counted.
type Handler interface {
	// Handle works on one task. What t refers to is the handler's to keep.
	Handle(ctx context.Context, t Task) error
}

// HandlerFunc is a function that is a [Handler].
type HandlerFunc func(ctx context.Context, t Task) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, t Task) error { return f(ctx, t) }

// DefaultBackoff waits about a second after the first attempt that failed, and twice as long after
// each further one, up to ten minutes; the upper half of that at random, so that what failed
// together is not tried together.
func DefaultBackoff(attempt int) time.Duration {
	d := 10 * time.Minute
	if attempt < 10 {
		d = min(d, time.Second<<max(attempt-1, 0))
	}
	return d/2 + jitter(d/2+1)
}

// Run works on tasks until ctx ends, then stops: it claims no more, gives back what it has not
// begun, waits up to Config.StopTimeout for handlers, then ends their contexts and waits for five
// seconds more. It returns nil, or a *StopError if handlers were still running. While Redis is away
// it waits for it, and says so to Config.OnError. Many may run, in one process or in thousands.
func (q *Queue) Run(ctx context.Context, h Handler) error {
	if h == nil {
		panic("rediswheel: Run with a nil Handler")
	}
	w := newWorker(q, h)
	defer w.places.leave()
	side, endSide := context.WithCancel(context.WithoutCancel(ctx)) // what goes on while handlers end
	defer endSide()
	hearing, endHearing := context.WithCancel(ctx)
	defer endHearing()
	var sides sync.WaitGroup
	sides.Go(func() { w.ends.flush(side) })
	sides.Go(func() { w.flights.renew(side) })
	sides.Go(func() { w.listen(hearing) })
	sides.Go(func() { w.keep(hearing) })

	w.work(ctx)
	endHearing()
	w.ends.rush()
	w.leave(side)
	err := w.flights.wait(q.cfg.StopTimeout)
	w.ends.finish(stopGrace)
	endSide()
	sides.Wait()
	return err
}

// stopGrace is how long Run waits for what should not take long: handlers whose context has ended,
// and the last answers of Redis.
const stopGrace = 5 * time.Second

// A worker is what one Run works with. The fields below loop belong to the goroutine of work.
type worker struct {
	q       *Queue
	id      string
	handler Handler
	start   time.Time
	places  *share
	flights flights
	ends    ends

	claimed  chan []claim
	messages chan message
	losses   chan struct{} // has a token when Redis has lost a shard

	loop struct {
		wheel    *timing.Wheel
		shards   []shard
		ready    int           // shards that wait to be claimed
		claims   int           // pipelines of claims on their way
		turn     int           // which shard goes first
		next     time.Duration // no claim before
		number   int           // of claims, for their tokens
		fails    int           // claims that failed, in a row
		helped   time.Duration // when help was last asked for
		balanced bool          // the worker has taken its share of the shards
	}
}

func newWorker(q *Queue, h Handler) *worker {
	w := &worker{
		q: q, id: rand.Text()[:12], handler: h, start: time.Now(),
		claimed: make(chan []claim, len(q.keys)), messages: make(chan message, 256), losses: make(chan struct{}, 1),
	}
	places := q.cfg.Places
	if places == nil {
		places = NewPlaces(q.cfg.Concurrency)
	}
	w.places = places.join(q.cfg.Weight)
	w.flights.w, w.ends.w, w.flights.all = w, w, make(map[*run]struct{})
	w.ends.some, w.ends.none = make(chan struct{}, 1), make(chan struct{}, 1)
	w.loop.wheel = timing.New(timing.Config{})
	w.loop.shards = make([]shard, len(q.keys))
	w.loop.helped = math.MinInt32
	return w
}

// now is the time on the worker's own clock, that of its wheel.
func (w *worker) now() time.Duration { return time.Since(w.start) }

// fail reports what keeps the worker from working.
func (w *worker) fail(err error) {
	w.q.counts.errors.Add(1)
	if w.q.cfg.OnError != nil {
		w.q.cfg.OnError(Task{}, err)
	}
}

// work waits for what is next to happen at the worker's shards, and claims tasks.
func (w *worker) work(ctx context.Context) {
	side := context.WithoutCancel(ctx)
	for i := range w.loop.shards {
		w.wake(i, 0)
	}
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for ctx.Err() == nil {
		w.loop.wheel.Advance(w.now(), 0)
		w.claimReady(side)
		if next, ok := w.loop.wheel.Next(); ok {
			alarm.Reset(max(next-w.now(), 0))
		}
		select {
		case <-ctx.Done():
		case <-alarm.C:
		case claims := <-w.claimed:
			w.took(side, claims)
		case m := <-w.messages:
			w.hear(m)
		case <-w.places.freed:
			w.refill()
		}
	}
	for w.loop.claims > 0 {
		w.giveBack(<-w.claimed)
	}
}

// notify puts a token into a channel that has room for one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func jitter(d time.Duration) time.Duration { return mathrand.N(max(d, 1)) }

// pause is how long to wait after n failures in a row.
func pause(n int) time.Duration {
	d := min(50*time.Millisecond<<min(n, 7), 2*time.Second)
	return d/2 + jitter(d/2)
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
