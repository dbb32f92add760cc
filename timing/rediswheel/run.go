package rediswheel

import (
	"context"
	"errors"
	"log"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// A run is a task that this worker holds: from the claim until Redis has been told how it ended.
type run struct {
	w      *worker
	shard  int
	task   Task
	id     string        // the key, as scripts have it
	token  string        // of its batch: what one claim gave
	place  int           // in the batch
	offset time.Duration // see shard
	late   time.Duration // how long after its due time it was claimed
	broken error         // the record cannot be read
	cancel context.CancelCauseFunc
}

// redisNow is the time by Redis' clock, to within half a round trip.
func (r *run) redisNow() time.Time { return time.Unix(0, int64(r.w.now()+r.offset)) }

// compare orders runs by batch, and as in their batch.
func (r *run) compare(other *run) int {
	if c := strings.Compare(r.token, other.token); c != 0 {
		return c
	}
	return r.place - other.place
}

// flights are the runs of a worker.
type flights struct {
	w    *worker
	lock sync.Mutex
	all  map[*run]struct{}
	busy sync.WaitGroup // handlers
	n    int            // of these
}

func (f *flights) add(r *run) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.all == nil {
		f.all = make(map[*run]struct{})
	}
	f.all[r] = struct{}{}
	f.w.q.counts.inFlight.Add(1)
}

func (f *flights) remove(r *run) {
	f.lock.Lock()
	defer f.lock.Unlock()
	delete(f.all, r)
	f.w.q.counts.inFlight.Add(-1)
}

// begin starts the handler. ctx has the values of Run's, but does not end with it.
func (f *flights) begin(ctx context.Context, r *run) {
	ctx, r.cancel = context.WithCancelCause(ctx)
	f.w.q.counts.late(r.late)
	f.add(r)
	f.lock.Lock()
	f.n++
	f.lock.Unlock()
	f.busy.Go(func() {
		e := end{}
		defer func() {
			if e.what == "" {
				e = r.failed(errGoexit)
			}
			r.cancel(nil)
			f.w.ends.put(r, e)
			f.w.release(1)
			f.lock.Lock()
			f.n--
			f.lock.Unlock()
		}()
		e = r.do(ctx)
	})
}

var errGoexit = errors.New("the handler called runtime.Goexit")

// wait waits for all handlers, first patiently, then with their contexts ended.
func (f *flights) wait(patience time.Duration) error {
	idle := make(chan struct{})
	go func() {
		f.busy.Wait()
		close(idle)
	}()
	for _, d := range []time.Duration{patience, stopGrace} {
		t := time.NewTimer(d)
		select {
		case <-idle:
			t.Stop()
			return nil
		case <-t.C:
			f.each(func(r *run) { r.cancelWith(ErrStopping) })
		}
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	return &StopError{f.n}
}

func (r *run) cancelWith(cause error) {
	if r.cancel != nil {
		r.cancel(cause)
	}
}

func (f *flights) each(do func(r *run)) {
	f.lock.Lock()
	defer f.lock.Unlock()
	for r := range f.all {
		do(r)
	}
}

// renew extends the leases of all runs, three times per lease.
func (f *flights) renew(ctx context.Context) {
	period := f.w.q.cfg.Lease / 3
	for ctx.Err() == nil {
		sleep(ctx, period)
		shards := make(map[int][]*run)
		f.each(func(r *run) { shards[r.shard] = append(shards[r.shard], r) })
		if len(shards) > 0 {
			f.extend(ctx, shards)
		}
	}
}

func (f *flights) extend(ctx context.Context, shards map[int][]*run) {
	var calls []call
	var groups [][]*run
	for shard, runs := range shards {
		slices.SortFunc(runs, (*run).compare)
		for ; len(runs) > 0; runs = runs[min(len(runs), maxBatch):] {
			group := runs[:min(len(runs), maxBatch)]
			args := appendBatches([]any{"", f.w.q.cfg.Lease.Milliseconds()}, group)
			calls, groups = append(calls, f.w.q.on(shard, scriptExtend, args...)), append(groups, group)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, f.w.q.cfg.Lease/3)
	defer cancel()
	values, errs := evalAll(ctx, f.w.client, calls)
	for i, group := range groups {
		if errs[i] != nil {
			f.w.fail(errs[i])
			continue
		}
		letters, _ := values[i].(string)
		for k, letter := range letters {
			if letter == 's' {
				group[k].cancelWith(ErrLeaseLost)
			}
		}
	}
}

// do calls the handler and says how the run ended.
func (r *run) do(ctx context.Context) end {
	cfg := &r.w.q.cfg
	if r.broken != nil {
		return r.failed(Permanent(r.broken))
	}
	if at, missed := r.missed(); missed {
		r.w.q.counts.skipped.Add(1)
		return end{what: "next", at: at}
	}
	timeout := r.task.Timeout
	if timeout == 0 {
		timeout = cfg.Timeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := r.call(limited)
	if err == nil {
		return r.done()
	}
	if cause := context.Cause(limited); errors.Is(cause, ErrStopping) || errors.Is(cause, ErrLeaseLost) {
		r.w.q.counts.postponed.Add(1)
		return end{what: "release", at: r.task.Due.UnixMilli()}
	}
	return r.failed(err)
}

// call calls the handler; a panic is an error.
func (r *run) call(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{v, debug.Stack()}
			if r.w.q.cfg.OnError == nil {
				log.Printf("rediswheel: task %q: %v\n%s", r.task.Key, p, p.Stack)
			}
			err = p
		}
	}()
	return r.w.handler.Handle(ctx, r.task)
}

// missed tells whether this occurrence is to be passed over, and when the next is.
func (r *run) missed() (next int64, missed bool) {
	t := &r.task
	if t.Misfire != Skip || !t.repeats() || t.Attempt > 1 || t.Delivery > 1 {
		return 0, false
	}
	now := r.redisNow()
	following, err := t.next(t.Occurred, t.Occurred)
	if err != nil || following.After(now) {
		return 0, false
	}
	at, err := t.next(t.Occurred, now)
	return ceilMilli(at), err == nil
}

func (r *run) done() end {
	e := end{what: "done"}
	if r.task.repeats() {
		next, err := r.task.next(r.task.Occurred, r.redisNow())
		if err != nil {
			return r.failed(Permanent(err)) // a zone that this machine does not know
		}
		e.at = ceilMilli(next)
	}
	return e
}

// failed decides what becomes of a task whose attempt failed.
func (r *run) failed(err error) end {
	var postpone *postponeError
	if errors.As(err, &postpone) {
		r.w.q.counts.postponed.Add(1)
		return end{what: "release", at: -1, delay: ceilDelay(postpone.after)}
	}
	r.w.q.counts.failed.Add(1)
	if r.w.q.cfg.OnError != nil {
		r.w.q.cfg.OnError(r.task, err)
	}
	most := r.task.MaxAttempts
	if most == 0 {
		most = r.w.q.cfg.MaxAttempts
	}
	var permanent *permanentError
	if errors.As(err, &permanent) || r.task.Attempt >= most {
		return r.dead(err)
	}
	e := end{what: "retry", at: -1, reason: reason(err)}
	var retry *retryError
	if errors.As(err, &retry) {
		e.delay = ceilDelay(retry.after)
	} else {
		e.delay = ceilDelay(r.w.q.cfg.Backoff(r.task.Attempt))
	}
	return e
}

// dead gives a task up; of one that repeats, this occurrence.
func (r *run) dead(err error) end {
	if r.task.repeats() && r.broken == nil {
		if next, err := r.task.next(r.task.Occurred, r.redisNow()); err == nil {
			return end{what: "next", at: ceilMilli(next)}
		}
	}
	return end{what: "dead", at: -1, reason: reason(err)}
}
