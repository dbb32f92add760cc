package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// A run is a task that this worker holds: from the claim until Redis has been told how it ended.
type run struct {
	w      *worker
	shard  int
	task   Task
	token  string        // of the claim
	offset time.Duration // see shard
	late   time.Duration // how long after its due time it was claimed
	broken error         // the record cannot be read
	cancel context.CancelCauseFunc
	result resultHolder
}

// redisNow is the time by Redis' clock, to within half a round trip.
func (r *run) redisNow() time.Time { return time.Unix(0, int64(r.w.now()+r.offset)) }

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
	latest := &f.w.q.counts.latest
	for old := latest.Load(); int64(r.late) > old && !latest.CompareAndSwap(old, int64(r.late)); {
		old = latest.Load()
	}
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
			f.lock.Lock()
			for r := range f.all {
				r.end(ErrStopping)
			}
			f.lock.Unlock()
		}
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	return &StopError{f.n}
}

// end ends the handler's context, if it has begun.
func (r *run) end(cause error) {
	if r.cancel != nil {
		r.cancel(cause)
	}
}

// renew extends the leases of all runs, three times per lease, until ctx ends.
func (f *flights) renew(ctx context.Context) {
	for lease := f.w.q.cfg.Lease; ctx.Err() == nil; sleep(ctx, lease/3) {
		shards := make(map[int][]*run)
		f.lock.Lock()
		for r := range f.all {
			shards[r.shard] = append(shards[r.shard], r)
		}
		f.lock.Unlock()
		var calls []call
		var groups [][]*run
		for shard, runs := range shards {
			for group := range slices.Chunk(runs, maxBatch) {
				c := f.w.q.on(shard, scriptExtend, "", lease.Milliseconds())
				for _, r := range group {
					c.args = append(c.args, r.task.Key, r.token)
				}
				calls, groups = append(calls, c), append(groups, group)
			}
		}
		if len(calls) == 0 {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, lease/3)
		values, errs := f.w.q.evalAll(limited, calls)
		cancel()
		for i, group := range groups {
			if errs[i] != nil {
				f.w.fail(errs[i])
				continue
			}
			letters, _ := values[i].(string)
			for k, letter := range letters {
				if letter == 's' {
					group[k].end(ErrLeaseLost)
				}
			}
		}
	}
}

// do calls the handler and says how the run ended.
func (r *run) do(ctx context.Context) end {
	t, cfg := &r.task, &r.w.q.cfg
	if r.broken != nil {
		return r.failed(Permanent(r.broken))
	}
	if t.repeats() {
		following, err := t.next(t.Occurred, t.Occurred)
		if err != nil { // a zone that this machine does not know, and another may
			return r.failed(Postpone(time.Minute, err))
		}
		if t.Misfire == Skip && t.Attempt == 1 && t.Delivery == 1 && !following.After(r.redisNow()) {
			r.w.q.counts.skipped.Add(1)
			return r.next(end{what: "next"})
		}
	}
	timeout := t.Timeout
	if timeout == 0 {
		timeout = cfg.Timeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if t.KeepResult > 0 {
		limited = context.WithValue(limited, resultKey{}, &r.result)
	}
	err := r.call(limited)
	if err == nil {
		e := end{what: "done"}
		if t.repeats() {
			e = r.next(e)
		}
		return e
	}
	if cause := context.Cause(limited); errors.Is(cause, ErrStopping) || errors.Is(cause, ErrLeaseLost) {
		r.w.q.counts.postponed.Add(1)
		return end{what: "release", at: t.Due.UnixMilli()}
	}
	return r.failed(err)
}

// call calls the handler; a panic is an error.
func (r *run) call(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{v, debug.Stack()}
			r.w.q.cfg.Logger.Error().Str("queue", r.w.q.cfg.Name).Str("key", r.task.Key).Bytes("stack", p.Stack).
				Msgf("a task's handler panicked: %v", v)
			err = p
		}
	}()
	return r.w.handler.Handle(ctx, r.task)
}

// next says when the next occurrence is.
func (r *run) next(e end) end {
	next, err := r.task.next(r.task.Occurred, r.redisNow())
	if err != nil { // it never comes
		return end{what: "dead", reason: reason(err)}
	}
	e.at = ceilMilli(next)
	return e
}

// failed decides what becomes of a task whose attempt failed.
func (r *run) failed(err error) end {
	cfg := &r.w.q.cfg
	var postpone *postponeError
	if errors.As(err, &postpone) {
		r.w.q.counts.postponed.Add(1)
		return end{what: "release", at: -ceilDelay(postpone.after)}
	}
	r.w.q.counts.failed.Add(1)
	if cfg.OnError != nil {
		cfg.OnError(r.task, err)
	}
	most := r.task.MaxAttempts
	if most == 0 {
		most = cfg.MaxAttempts
	}
	var permanent *permanentError
	var retry *retryError
	switch over := errors.As(err, &permanent) || r.task.Attempt >= most; {
	case over && r.task.repeats() && r.broken == nil: // this occurrence is given up
		return r.next(end{what: "next"})
	case over:
		return end{what: "dead", reason: reason(err)}
	case errors.As(err, &retry):
		return end{what: "retry", at: -ceilDelay(retry.after), reason: reason(err)}
	}
	return end{what: "retry", at: -ceilDelay(cfg.Backoff(r.task.Attempt)), reason: reason(err)}
}

// MaxResult bounds what [SetResult] takes, in bytes.
const MaxResult = 64 << 10

type resultKey struct{}

type resultHolder struct {
	lock  sync.Mutex
	bytes []byte
}

// SetResult leaves a result of the task whose handler was given ctx. If the attempt ends with
// success, [Queue.Result] returns it for as long as Task.KeepResult says. Calling it again replaces
// the result, which is copied. It may be called from any goroutine while the handler runs.
//
// Errors: ErrTooLarge above MaxResult, ErrBadTask if the task does not keep results.
func SetResult(ctx context.Context, result []byte) error {
	h, ok := ctx.Value(resultKey{}).(*resultHolder)
	if !ok {
		return fmt.Errorf("rediswheel: %w: a result is set, but the task has no KeepResult", ErrBadTask)
	}
	if len(result) > MaxResult {
		return tooLarge("the result has %d bytes, of at most %d", len(result), MaxResult)
	}
	h.lock.Lock()
	defer h.lock.Unlock()
	h.bytes = append([]byte{}, result...)
	return nil
}

// kept returns the result of a run that is over, or nil.
func (r *run) kept() []byte {
	r.result.lock.Lock()
	defer r.result.lock.Unlock()
	return r.result.bytes
}
