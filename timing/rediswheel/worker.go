package rediswheel

import (
	"cmp"
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/timing"
)

// A Handler performs tasks. Run calls Handle on a separate goroutine for each task.
//
// nil means done: the task is over, or its next occurrence is scheduled. An error means that this
// attempt has failed, unless it is an error of [Postpone]; see also [Permanent] and [RetryAfter]. A
// panic counts as an error.
//
// The context ends at the timeout of the attempt. It ends with the cause ErrCancelled if the task
// is cancelled, with ErrLeaseLost when another worker may have the task, and with ErrStopping after
// StopTimeout. With one of these causes, an error is not a failed attempt: the task is over, or
// goes to another worker.
type Handler interface {
	// Handle works on one task. The handler may keep everything that t refers to.
	Handle(ctx context.Context, t Task) error
}

// HandlerFunc is a function that implements [Handler].
type HandlerFunc func(ctx context.Context, t Task) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, t Task) error { return f(ctx, t) }

// DefaultBackoff waits about a second after the first failed attempt, and twice as long after each
// further one, up to ten minutes. The upper half of the delay is random.
func DefaultBackoff(attempt int) time.Duration {
	d := min(time.Second<<min(max(attempt-1, 0), 20), 10*time.Minute)
	return d/2 + jitter(d/2+1)
}

func jitter(d time.Duration) time.Duration { return mathrand.N(max(d, 1)) }

const (
	pace      = 5 * time.Millisecond   // between two pipelines of a worker: few scripts for many tasks
	pause     = 300 * time.Millisecond // minimum after an error of Redis, and half of the maximum
	stopGrace = 5 * time.Second        // extra time for handlers whose context has ended, and for Redis
)

// A worker is the state of one Run. It belongs to Run's goroutine. Handlers and scripts run on
// other goroutines and post their results.
type worker struct {
	q       *Queue
	id      string
	handler Handler
	ctx     context.Context // has the values of Run's context, and ends when Run returns
	start   time.Time
	wheel   *timing.Wheel // in time since start
	places  *share
	posts   chan func()
	sides   sync.WaitGroup // goroutines that use the client

	calls   []call             // of the next pipeline
	thens   []func(answer any) // called with their answers
	pending int                // scripts without an answer
	next    time.Duration      // no earlier pipeline, unless half of the places wait for it

	shards     []shard
	balanced   bool          // the worker has taken its part of the shards
	quiet      time.Duration // until then, a data loss has been reported already
	clockQuiet time.Duration // until then, a clock step has been reported already

	runs     map[*run]struct{} // from the claim until Redis knows the result
	held     map[string]*run   // the latest of runs for each key
	running  int               // runs whose handler has not returned
	ended    []*run            // runs whose end Redis does not know yet
	stopping bool
	giveUp   time.Duration // when stopping: the latest time
}

// Run works on tasks until ctx ends. To stop, it claims no more tasks, returns tasks that it has
// not started, waits up to Config.StopTimeout for handlers, ends their contexts, and waits for
// another five seconds. It returns nil, or a *StopError if handlers were still running. While Redis
// is unreachable, Run waits for it and reports that to Config.OnError. Any number may run, in one
// process or in thousands.
func (q *Queue) Run(ctx context.Context, h Handler) error {
	if h == nil {
		panic("rediswheel: Run with a nil Handler")
	}
	places := cmp.Or(q.cfg.Places, NewPlaces(q.cfg.Concurrency))
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &worker{
		q: q, id: rand.Text()[:12], handler: h, ctx: own, start: time.Now(), wheel: timing.New(timing.Config{}),
		places: places.join(q.cfg.Weight), posts: make(chan func(), 64),
		shards: make([]shard, len(q.keys)), runs: make(map[*run]struct{}), held: make(map[string]*run),
	}
	w.sides.Go(func() { w.listen(ctx) })
	w.work(ctx.Done())
	cancel()
	patience, end := context.WithTimeout(context.WithoutCancel(ctx), w.giveUp-w.now())
	defer end()
	// If Redis does not answer, the client's timeouts end the calls later.
	_ = onredis.Await(patience, func() error { w.sides.Wait(); return nil })
	w.places.leave()
	q.count(func(s *Stats) { s.InFlight -= len(w.runs) })
	if w.running > 0 {
		return &StopError{w.running}
	}
	return nil
}

// now returns the time of the worker's own clock, that of its wheel. Any goroutine may call it.
func (w *worker) now() time.Duration { return time.Since(w.start) }

// work is the worker's loop.
func (w *worker) work(stop <-chan struct{}) {
	w.lookAtAll()
	w.restore()
	w.wheel.Every(w.q.cfg.Lease/3, w.q.cfg.Lease/3, w.renewLeases)
	w.wheel.Every(0, 10*w.q.cfg.Refresh, func() {
		for i := range w.shards {
			w.purge(i)
		}
	})
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for !w.stopping || len(w.runs)+len(w.calls)+w.pending > 0 && w.now() < w.giveUp {
		w.wheel.Advance(w.now(), 0)
		w.send()
		if next, ok := w.wheel.Next(); ok {
			alarm.Reset(max(next-w.now(), 0))
		}
		select {
		case <-stop:
			stop = nil
			w.stop()
		case <-alarm.C:
		case f := <-w.posts:
			f()
		case <-w.places.freed:
		}
	}
}

// stop begins to stop Run.
func (w *worker) stop() {
	w.stopping = true
	w.leave()
	patience := w.now() + w.q.cfg.StopTimeout
	w.wheel.At(patience, func() {
		for r := range w.runs {
			r.cancel(ErrStopping)
		}
	})
	w.giveUp = patience + stopGrace
	w.wheel.At(w.giveUp, func() {}) // wakes the loop
}

// post calls f on the worker's goroutine, unless Run has returned.
func (w *worker) post(f func()) {
	select {
	case w.posts <- f:
	case <-w.ctx.Done():
	}
}

// do calls f on a separate goroutine, and then the returned function on the worker's.
func (w *worker) do(f func(ctx context.Context) (then func())) {
	w.pending++
	w.sides.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, w.q.cfg.Lease)
		defer cancel()
		then := f(ctx)
		w.post(func() {
			w.pending--
			then()
		})
	})
}

// ask adds a script to the next pipeline. then gets the answer, nil if there is none.
func (w *worker) ask(c call, then func(answer any)) {
	w.calls, w.thens = append(w.calls, c), append(w.thens, then)
}

// send sends a pipeline if there are ended runs to report, shards to claim, or other calls.
func (w *worker) send() {
	if w.now() < w.next && len(w.ended) < w.places.total/2 {
		return
	}
	w.reportEnds()
	w.claim()
	if len(w.calls) == 0 {
		return
	}
	w.next = w.now() + pace
	w.wheel.At(w.next, func() {}) // wakes the loop
	calls, thens := w.calls, w.thens
	w.calls, w.thens = nil, nil
	w.do(func(ctx context.Context) func() {
		answers, errs := w.q.evalAll(ctx, calls)
		return func() {
			if err := cmp.Or(errs...); err != nil {
				w.fail(err)
			}
			for i, then := range thens {
				then(answers[i])
			}
		}
	})
}

// fail reports what stops the worker from working.
func (w *worker) fail(err error) {
	w.q.count(func(s *Stats) { s.Errors++ })
	w.q.cfg.OnError(Task{}, err)
}

// afterPause calls f after a pause, when Redis may be reachable again.
func (w *worker) afterPause(f func()) {
	w.wheel.At(w.now()+pause+jitter(pause), f)
}

// purge deletes dead tasks of a shard that the worker owns, according to MaxDead and DeadAge.
func (w *worker) purge(i int) {
	if cfg := &w.q.cfg; w.shards[i].owner == w.id && !w.stopping {
		keep := (cfg.MaxDead + len(w.shards) - 1) / len(w.shards)
		w.ask(w.q.on(i, "purge", "", cfg.DeadAge.Milliseconds(), keep), func(answer any) {
			n, _ := answer.(int64)
			w.q.count(func(s *Stats) { s.Purged += uint64(n) })
			if n == maxBatch {
				w.purge(i)
			}
		})
	}
}

// lost reports that Redis has lost a shard. Other lost shards are detected within a refresh.
func (w *worker) lost() {
	if w.now() >= w.quiet {
		w.q.report(wrap(ErrLost, "keys of the queue %q are gone", w.q.cfg.Name))
	}
	w.quiet = w.now() + w.q.cfg.ownership()
	w.restore()
}

// restore adds the tasks of Config.Repeating. It retries until Redis has them.
func (w *worker) restore() {
	w.do(func(ctx context.Context) func() {
		err := w.q.restore(ctx)
		return func() {
			if err != nil && !w.stopping {
				w.fail(err)
				w.afterPause(w.restore)
			}
		}
	})
}
