package rediswheel

import (
	"context"
	"crypto/rand"
	"math"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/redisopt"
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
	return d/2 + mathrand.N(d/2+1)
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
	defer w.close()
	return w.run(ctx)
}

// A worker is what one Run works with. The fields below loop belong to the goroutine of the method
// of that name.
type worker struct {
	q       *Queue
	id      string
	client  redis.UniversalClient
	own     bool // the client is ours to close
	handler Handler
	start   time.Time
	flights flights
	ends    ends
	ears    ears

	claimed   chan claimed  // what claims gave
	freed     chan struct{} // there may be more free places than when last looked
	messages  chan message
	beats     chan []string
	sightings chan []sighting // of shards of others
	losses    chan struct{}   // has a token when Redis has lost a shard
	crowd     atomic.Int64    // how many workers there are

	loop struct {
		wheel   *timing.Wheel
		shards  []shard
		members []string
		ready   int // shards that wait to be claimed
		busy    int // claims that have not come back
		turn    int // which shard goes first
		cried   time.Duration
		fails   int           // claims that failed, in a row
		watch   timing.Timer  // of the shards of others
		till    time.Duration // when the first of their owners must have given it up
		lead    bool          // the watch is that of the one who ranks first
		asking  bool          // the watch's question is on its way
		soon    bool          // freed places are looked at soon
	}
	free     int // places
	freeLock sync.Mutex
}

// newWorker makes a worker. A command whose answer was lost must not be sent again behind our back:
// a claim would take tasks twice, and leave the first to their lease. So the client is one like the
// user's, without retries.
func newWorker(q *Queue, h Handler) *worker {
	w := &worker{
		q: q, id: rand.Text()[:12], client: q.client, handler: h, start: time.Now(), free: q.cfg.Concurrency,
		claimed: make(chan claimed, len(q.keys)), freed: make(chan struct{}, 1),
		messages: make(chan message, 256), beats: make(chan []string, 1), sightings: make(chan []sighting, 1),
		losses: make(chan struct{}, 1),
	}
	if single, ok := q.client.(*redis.Client); ok {
		options := redisopt.Copy(single.Options())
		options.MaxRetries = -1
		w.client, w.own = redis.NewClient(options), true
	}
	w.flights.w, w.ends.w = w, w
	w.ends.init()
	w.ears = ears{w: w, wanted: make(map[string]bool), changed: make(chan struct{}, 1)}
	w.loop.wheel = timing.New(timing.Config{})
	w.loop.shards = make([]shard, len(q.keys))
	w.loop.cried = math.MinInt32
	return w
}

func (w *worker) close() {
	if w.own {
		_ = w.client.Close()
	}
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

// run is Run.
func (w *worker) run(ctx context.Context) error {
	side, endSide := context.WithCancel(context.WithoutCancel(ctx)) // what goes on while handlers end
	defer endSide()
	var sides sync.WaitGroup
	sides.Go(func() { w.ends.flush(side) })
	sides.Go(func() { w.flights.renew(side) })
	ears, endEars := context.WithCancel(ctx)
	var hearing sync.WaitGroup
	hearing.Go(func() { w.ears.listen(ears) })
	hearing.Go(func() { w.beat(ears) })
	hearing.Go(func() { w.keep(ears) })

	w.work(ctx)
	endEars()
	w.ends.rush()
	w.leave(side)
	err := w.flights.wait(w.q.cfg.StopTimeout)
	w.ends.finish(stopGrace)
	endSide()
	sides.Wait()
	hearing.Wait()
	return err
}

// stopGrace is how long Run waits for what should not take long: handlers whose context has ended,
// and the last answers of Redis.
const stopGrace = 5 * time.Second

// work is the worker's loop: it waits for what is next to happen at its shards, and claims tasks.
func (w *worker) work(ctx context.Context) {
	side := context.WithoutCancel(ctx)
	for i := range w.loop.shards {
		w.wake(i, 0)
	}
	w.watchFrom(w.now() + 3*w.q.cfg.Refresh)
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
		case c := <-w.claimed:
			w.took(side, c)
		case m := <-w.messages:
			w.hear(m)
		case members := <-w.beats:
			w.rebalance(members)
		case found := <-w.sightings:
			w.saw(found)
		case <-w.freed:
			w.refill()
		}
	}
	for w.loop.busy > 0 {
		w.giveBack(<-w.claimed)
	}
}

// reserve takes up to n free places. While many ends have not reached Redis there are fewer, as what is
// lost with this worker stays bounded; those that go along do not count.
func (w *worker) reserve(n, along int) int {
	n = min(n, max(w.ends.most()-w.ends.held()+along, 0))
	w.freeLock.Lock()
	defer w.freeLock.Unlock()
	n = min(n, w.free)
	w.free -= n
	return n
}

// release gives places back.
func (w *worker) release(n int) {
	if n == 0 {
		return
	}
	w.freeLock.Lock()
	w.free += n
	w.freeLock.Unlock()
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

func (w *worker) places() int {
	w.freeLock.Lock()
	defer w.freeLock.Unlock()
	return max(min(w.free, w.ends.most()-w.ends.held()), 0)
}
