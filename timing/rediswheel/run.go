package rediswheel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	end    end
}

// An end is how a run ended.
type end struct {
	what   string // done, next, retry, release or dead
	at     int64  // when the task is due next, in ms; not positive: a negative delay. Of done: 0, or the next occurrence
	reason string
}

// redisNow is the time by Redis' clock, to within half a round trip.
func (r *run) redisNow() time.Time { return time.Unix(0, int64(r.w.now()+r.offset)) }

// begin starts the handler of a run, unless the worker stops.
func (w *worker) begin(r *run) {
	w.runs[r] = struct{}{}
	w.q.count(func(s *Stats) {
		s.InFlight++
		s.LatenessMax = max(s.LatenessMax, r.late)
	})
	if w.running++; w.stopping {
		r.end = end{what: "release", at: r.task.Due.UnixMilli()}
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
	t := &r.task
	if r.broken != nil {
		return r.failed(Permanent(r.broken))
	}
	if t.repeats() {
		following, err := t.next(t.Occurred, t.Occurred)
		if err != nil { // a zone that this machine does not know, and another may
			return r.failed(Postpone(time.Minute, err))
		}
		if t.Misfire == Skip && t.Attempt == 1 && t.Delivery == 1 && !following.After(r.redisNow()) {
			r.w.q.count(func(s *Stats) { s.Skipped++ })
			return r.next("next")
		}
	}
	limited, cancel := context.WithTimeout(ctx, cmp.Or(t.Timeout, r.w.q.cfg.Timeout))
	defer cancel()
	if t.KeepResult > 0 {
		limited = context.WithValue(limited, resultKey{}, &r.result)
	}
	err := r.call(limited)
	cause := context.Cause(limited)
	switch {
	case err == nil && t.repeats():
		return r.next("done")
	case err == nil:
		return end{what: "done"}
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
func (r *run) next(what string) end {
	next, err := r.task.next(r.task.Occurred, r.redisNow())
	if err != nil { // it never comes
		return end{what: "dead", reason: reason(err)}
	}
	return end{what: what, at: ceilMilli(next)}
}

// failed decides what becomes of a task whose attempt failed.
func (r *run) failed(err error) end {
	cfg := &r.w.q.cfg
	v := &verdict{what: backOff}
	errors.As(err, &v)
	if v.what == postpone {
		r.w.q.count(func(s *Stats) { s.Postponed++ })
		return end{what: "release", at: -ceilDelay(v.after)}
	}
	r.w.q.count(func(s *Stats) { s.Failed++ })
	if cfg.OnError != nil {
		cfg.OnError(r.task, err)
	}
	after := v.after
	switch over := v.what == permanent || r.task.Attempt >= cmp.Or(r.task.MaxAttempts, cfg.MaxAttempts); {
	case over && r.task.repeats() && r.broken == nil: // this occurrence is given up
		return r.next("next")
	case over:
		return end{what: "dead", reason: reason(err)}
	case v.what == backOff:
		after = cfg.Backoff(r.task.Attempt)
	}
	return end{what: "retry", at: -ceilDelay(after), reason: reason(err)}
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
	w.each(runs, true, func(l lot, group []*run) call {
		if l.over {
			return w.ack(l.shard, group)
		}
		return w.nack(l.shard, group)
	}, func(group []*run, letters string, err error) {
		if err != nil {
			w.unheard++
			w.wheel.At(w.now()+pause(w.unheard), func() {
				w.ended = append(w.ended, group...)
				w.tell()
			})
			return
		}
		w.unheard = 0
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
			case r.end.what == "done":
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

func (w *worker) ack(shard int, group []*run) call {
	c := w.q.on(shard, "ack", len(group))
	c.keys = slices.Clip(c.keys)
	for _, r := range group {
		c.args = append(c.args, r.task.Key, r.token)
	}
	for i, r := range group {
		if result := r.result.get(); result != nil {
			c.keys = append(c.keys, w.q.resultKey(shard, r.task.Key))
			c.args = append(c.args, i+1, max(r.task.KeepResult.Milliseconds(), 1), result)
		}
	}
	return c
}

func (w *worker) nack(shard int, group []*run) call {
	c := w.q.on(shard, "nack", "")
	for _, r := range group {
		what := r.end.what
		if what == "done" {
			what = "next"
		}
		c.args = append(c.args, r.task.Key, r.token, what, r.end.at, r.end.reason)
	}
	return c
}

// extend extends the leases of all runs.
func (w *worker) extend() {
	w.each(slices.Collect(maps.Keys(w.runs)), false, func(l lot, group []*run) call {
		c := w.q.on(l.shard, "extend", "", w.q.cfg.Lease.Milliseconds())
		for _, r := range group {
			c.args = append(c.args, r.task.Key, r.token)
		}
		return c
	}, func(group []*run, letters string, _ error) {
		for i, letter := range letters {
			if letter == 's' {
				group[i].cancel(ErrLeaseLost)
			}
		}
	})
}

// A lot is what one script is for.
type lot struct {
	shard int
	over  bool // nothing is left of the tasks
}

// each has a script run for the runs of each lot, maxBatch at most, and then gives its letters, one
// for each run.
func (w *worker) each(runs []*run, byEnd bool, script func(l lot, group []*run) call, then func(group []*run, letters string, err error)) {
	lots := make(map[lot][]*run)
	for _, r := range runs {
		l := lot{r.shard, byEnd && r.end.what == "done" && r.end.at == 0}
		lots[l] = append(lots[l], r)
	}
	var calls []call
	var groups [][]*run
	for l, all := range lots {
		for group := range slices.Chunk(all, maxBatch) {
			calls, groups = append(calls, script(l, group)), append(groups, group)
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
				then(group, letters, errs[i])
			}
		}
	})
}

// MaxResult bounds what [SetResult] takes, in bytes.
const MaxResult = 64 << 10

type resultKey struct{}

type resultHolder struct {
	lock  sync.Mutex
	bytes []byte
}

func (h *resultHolder) get() []byte {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.bytes
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
