package rediswheel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// A run is a task that this worker holds: from the claim until Redis has been told how it ended.
type run struct {
	w      *worker
	shard  int
	key    string
	due    time.Time
	state  string // as Redis has it
	record string
	token  string        // of the claim
	offset time.Duration // see shard
	cancel context.CancelCauseFunc
	task   Task // of the handler's goroutine
	end    end
}

// An end is how a run ended, as runs.lua wants it.
type end struct {
	what     string // done, keep, next, retry, release or dead
	at       int64  // when the task is due next, in ms; not positive: a negative delay. Of keep: ms to keep text
	text     string // the reason of a failure, or the result
	achieved bool   // the handler has returned nil
}

// redisNow is the time by Redis' clock, to within half a round trip.
func (r *run) redisNow() time.Time { return time.Unix(0, int64(r.w.now()+r.offset)) }

// begin starts the handler of a run, unless the worker stops.
func (w *worker) begin(r *run) {
	w.runs[r] = struct{}{}
	if w.running++; w.stopping {
		r.end = end{what: "release", at: r.due.UnixMilli()}
		w.finish(r)
		return
	}
	ctx, cancel := context.WithCancelCause(w.ctx)
	r.cancel = cancel
	go func() {
		defer func() {
			if r.end.what == "" {
				r.end = r.failed(errGoexit)
			}
			cancel(nil)
			w.post(func() { w.finish(r) })
		}()
		r.end = r.do(ctx)
	}()
}

// do calls the handler and says how the run ended.
func (r *run) do(ctx context.Context) end {
	r.task = Task{Key: r.key, Due: r.due}
	t := &r.task
	t.readState(r.state)
	if err := t.read(r.record); err != nil {
		return r.failed(Permanent(err))
	}
	if t.repeats() {
		following, err := t.next(t.Occurred, t.Occurred)
		if err != nil { // a zone that this machine does not know, and another may
			return r.failed(Postpone(time.Minute, err))
		}
		if t.Misfire == Skip && t.Attempt == 1 && t.Delivery == 1 && !following.After(r.redisNow()) {
			r.w.q.count(func(s *Stats) { s.Skipped++ })
			return r.next(false)
		}
	}
	limited, cancel := context.WithTimeout(ctx, cmp.Or(t.Timeout, r.w.q.cfg.Timeout))
	defer cancel()
	var result atomic.Pointer[[]byte]
	if t.KeepResult > 0 {
		limited = context.WithValue(limited, resultKey{}, &result)
	}
	err := r.call(limited)
	cause := context.Cause(limited)
	switch kept := result.Load(); {
	case err == nil && t.repeats():
		return r.next(true)
	case err == nil && kept != nil:
		return end{what: "keep", at: max(t.KeepResult.Milliseconds(), 1), text: string(*kept), achieved: true}
	case err == nil:
		return end{what: "done", achieved: true}
	case errors.Is(cause, ErrStopping) || errors.Is(cause, ErrLeaseLost):
		r.w.q.count(func(s *Stats) { s.Postponed++ })
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

// next ends an occurrence.
func (r *run) next(achieved bool) end {
	next, err := r.task.next(r.task.Occurred, r.redisNow())
	if err != nil { // it never comes
		return end{what: "dead", text: reason(err)}
	}
	return end{what: "next", at: ceilMilli(next), achieved: achieved}
}

// failed decides what becomes of a task whose attempt failed.
func (r *run) failed(err error) end {
	cfg := &r.w.q.cfg
	v := &verdict{}
	errors.As(err, &v)
	if v.what == "release" {
		r.w.q.count(func(s *Stats) { s.Postponed++ })
		return end{what: "release", at: -ceilDelay(v.after)}
	}
	r.w.q.count(func(s *Stats) { s.Failed++ })
	if cfg.OnError != nil {
		cfg.OnError(r.task, err)
	}
	over := v.what == "dead" || r.task.Attempt >= cmp.Or(r.task.MaxAttempts, cfg.MaxAttempts)
	switch {
	case over && r.task.repeats(): // this occurrence is given up
		return r.next(false)
	case over:
		return end{what: "dead", text: reason(err)}
	case v.what == "":
		v.after = cfg.Backoff(r.task.Attempt)
	}
	return end{what: "retry", at: -ceilDelay(v.after), text: reason(err)}
}

// finish takes a run that ended. What ends within a pace goes into one pipeline, unless half of the
// places wait for that.
func (w *worker) finish(r *run) {
	w.running--
	w.ended = append(w.ended, r)
	switch {
	case w.stopping || len(w.ended) >= w.places.total/2:
		w.tell()
	case !w.wheel.Pending(w.teller):
		w.teller = w.wheel.At(w.now()+pace, w.tell)
	}
	if w.stopping && w.running == 0 {
		w.giveUpAt(w.now() + stopGrace)
	}
}

// tell tells Redis how runs ended. What cannot be sent is tried again: the work was done, and only
// Redis can say that the lease is lost. A run keeps its place until then: what is lost with this
// worker is no more than its places.
func (w *worker) tell() {
	runs := w.ended
	w.ended = nil
	w.wheel.Stop(w.teller)
	w.eachGroup(runs, func(r *run) end { return r.end }, func(group []*run, letters string) {
		if letters == "" {
			w.wheel.At(w.now()+pause(w.fails), func() {
				w.ended = append(w.ended, group...)
				w.tell()
			})
			return
		}
		w.fails = 0
		w.told(group, letters)
	})
}

// told takes Redis' letters, after which the runs are over.
func (w *worker) told(group []*run, letters string) {
	w.q.count(func(s *Stats) {
		s.InFlight -= len(group)
		for i, r := range group {
			switch {
			case letters[i] == 's':
				s.Stale++
			case r.end.achieved:
				s.Done++
			case letters[i] == 'x':
				s.Died++
			}
		}
	})
	for _, r := range group {
		delete(w.runs, r)
	}
	w.places.giveBack(len(group))
	w.refill()
}

// extend extends the leases of all runs.
func (w *worker) extend() {
	longer := end{what: "extend", at: -w.q.cfg.Lease.Milliseconds()}
	w.eachGroup(slices.Collect(maps.Keys(w.runs)), func(*run) end { return longer }, func(group []*run, letters string) {
		for i, letter := range letters {
			if letter == 's' {
				group[i].cancel(ErrLeaseLost)
			}
		}
	})
}

// eachGroup gives runs.lua what becomes of runs, those of one shard together, maxBatch at most.
// then gets the script's letters, one for each run, or none if it failed.
func (w *worker) eachGroup(runs []*run, what func(r *run) end, then func(group []*run, letters string)) {
	shards := make(map[int][]*run)
	for _, r := range runs {
		shards[r.shard] = append(shards[r.shard], r)
	}
	var calls []call
	var groups [][]*run
	for shard, all := range shards {
		for group := range slices.Chunk(all, maxBatch) {
			c := w.q.on(shard, "runs", "")
			c.keys = slices.Clip(c.keys)
			for _, r := range group {
				e := what(r)
				c.args = append(c.args, r.key, r.token, e.what, e.at, e.text)
				if e.what == "keep" {
					c.keys = append(c.keys, w.q.resultKey(shard, r.key))
				}
			}
			calls, groups = append(calls, c), append(groups, group)
		}
	}
	if len(calls) == 0 {
		return
	}
	w.do(func(ctx context.Context) func() {
		values, errs := w.q.evalAll(ctx, calls)
		return func() {
			for i, group := range groups {
				if errs[i] != nil {
					w.fail(errs[i])
				}
				letters, _ := values[i].(string)
				then(group, letters)
			}
		}
	})
}

// MaxResult bounds what [SetResult] takes, in bytes.
const MaxResult = 64 << 10

type resultKey struct{}

// SetResult leaves a result of the task whose handler was given ctx. If the attempt ends with
// success, [Queue.Result] returns it for as long as Task.KeepResult says. Calling it again replaces
// the result, which is copied. It may be called from any goroutine while the handler runs.
//
// Errors: ErrTooLarge above MaxResult, ErrBadTask if the task does not keep results.
func SetResult(ctx context.Context, result []byte) error {
	kept, ok := ctx.Value(resultKey{}).(*atomic.Pointer[[]byte])
	if !ok {
		return fmt.Errorf("rediswheel: %w: a result is set, but the task has no KeepResult", ErrBadTask)
	}
	if len(result) > MaxResult {
		return tooLarge("the result has %d bytes, of at most %d", len(result), MaxResult)
	}
	result = slices.Clone(result)
	kept.Store(&result)
	return nil
}
