package rediswheel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A run is a task that this worker holds, from the claim until Redis knows the result.
type run struct {
	w      *worker
	shard  int
	task   Task
	id     string                  // of the record
	token  string                  // of the claim
	until  time.Duration           // the end of its lease on the worker's clock, or earlier
	offset time.Duration           // from the worker's clock to Redis' clock, as time since 1970
	cancel context.CancelCauseFunc // of the handler's context
	end    end
}

// An end is the result of a run, in the form of runs.lua.
type end struct {
	what     string // done, keep, next, retry, release or dead
	at       int64  // next due time in ms; not positive: a negative delay. For keep: ms to keep text
	text     string // the reason of a failure, or the result
	achieved bool   // the handler has returned nil
}

// redisNow returns the time by Redis' clock, minus up to a round trip and a millisecond.
func (r *run) redisNow() time.Time { return time.Unix(0, int64(r.w.now()+r.offset)) }

// handled has the IDs of the records whose handlers run in this process, for any worker.
var handled sync.Map

// begin starts the handler of a run, unless the worker stops or the lease has ended. If the worker
// has the task already, because the lease ended unnoticed when Redis' clock was set ahead, that run
// goes on. If its handler still runs elsewhere in this process, the task is postponed.
func (w *worker) begin(r *run, record string) {
	r.id = strings.Clone(record[:min(recordID, len(record))])
	if old := w.held[r.task.Key]; old != nil && old.id == r.id && old.task.Attempt == r.task.Attempt &&
		old.task.Occurred.Equal(r.task.Occurred) && r.task.Delivery > 1 {
		old.token, old.until = r.token, r.until
		w.places.giveBack(1, 0)
		w.q.count(func(s *Stats) { s.InFlight-- })
		return
	}
	w.runs[r], w.held[r.task.Key] = struct{}{}, r
	ctx, cancel := context.WithCancelCause(w.ctx)
	r.cancel = cancel
	if w.stopping || w.now() >= r.until { // the answer of Redis may have taken longer than the lease
		r.end = end{what: "release", at: r.task.Due.UnixMilli()}
		w.ended = append(w.ended, r)
		return
	}
	if _, busy := handled.LoadOrStore(r.id, nil); busy {
		r.end = end{what: "release", at: -w.q.cfg.Lease.Milliseconds()}
		w.ended = append(w.ended, r)
		return
	}
	w.running++
	go func() {
		defer func() {
			handled.Delete(r.id)
			if r.end.what == "" {
				r.end = r.failed(errGoexit)
			}
			cancel(nil)
			w.post(func() {
				w.running--
				w.ended = append(w.ended, r)
			})
		}()
		r.end = r.do(ctx, record)
	}()
}

// do calls the handler and returns the end of the run.
func (r *run) do(ctx context.Context, record string) end {
	t := &r.task
	if err := t.read(record); err != nil {
		return r.failed(Permanent(err))
	}
	if t.repeats() {
		following, err := t.next(t.Occurred, t.Occurred)
		if err != nil { // the zone is invalid
			return r.failed(unable(err))
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
	case errors.Is(cause, ErrCancelled):
		return end{what: "release", at: t.Due.UnixMilli()} // Redis knows the cause, and drops the task
	case errors.Is(cause, ErrStopping) || errors.Is(cause, ErrLeaseLost):
		err = &verdict{err: err, end: end{what: "release", at: t.Due.UnixMilli()}}
	}
	return r.failed(err)
}

// call calls the handler and returns a panic as an error.
func (r *run) call(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p := &PanicError{v, debug.Stack()}
			r.w.q.cfg.Logger.Error().Str("queue", r.w.q.cfg.Name).Str("key", r.task.Key).Bytes("stack", p.Stack).
				Str("panic", fmt.Sprint(v)).Msg("a task's handler panicked")
			err = p
		}
	}()
	return r.w.handler.Handle(ctx, r.task)
}

// next returns the end of an occurrence.
func (r *run) next(achieved bool) end {
	next, err := r.task.next(r.task.Occurred, r.redisNow())
	if err != nil { // there is none
		return end{what: "dead", text: reason(err)}
	}
	return end{what: "next", at: ceilMilli(next), achieved: achieved}
}

// failed decides what happens to a task after a failed attempt.
func (r *run) failed(err error) end {
	cfg := &r.w.q.cfg
	v := &verdict{}
	if errors.As(err, &v); v.end.what == "release" {
		if v.unable {
			// About five refreshes: if all tasks came back at once, workers that lack each other's
			// kinds would pass the shard back and forth forever.
			v.end.at = -ceilDelay(5*cfg.Refresh/2 + jitter(5*cfg.Refresh))
			cfg.OnError(r.task, err)
			r.w.post(func() { r.w.decline(r.shard) })
		}
		r.w.q.count(func(s *Stats) { s.Postponed++ })
		return v.end
	}
	r.w.q.count(func(s *Stats) { s.Failed++ })
	cfg.OnError(r.task, err)
	over := v.end.what == "dead" || r.task.Attempt >= cmp.Or(r.task.MaxAttempts, cfg.MaxAttempts)
	switch {
	case over && r.task.repeats(): // this occurrence is given up
		return r.next(false)
	case over:
		return end{what: "dead", text: reason(err)}
	case v.end.what == "retry":
		return end{what: "retry", at: v.end.at, text: reason(err)}
	}
	return end{what: "retry", at: -ceilDelay(cfg.Backoff(r.task.Attempt)), text: reason(err)}
}

// reportEnds reports ended runs to Redis until Redis knows. Until then a run keeps its place, so
// that a lost worker loses at most as many results as it has places.
func (w *worker) reportEnds() {
	w.runPerShard(w.ended, func(r *run) end { return r.end }, func(r *run, word string) {
		if word == "" {
			w.afterPause(func() { w.ended = append(w.ended, r) })
			return
		}
		delete(w.runs, r)
		if w.held[r.task.Key] == r {
			delete(w.held, r.task.Key)
		}
		w.places.giveBack(1, 1)
		w.q.count(func(s *Stats) {
			s.InFlight--
			switch {
			case word == "stale":
				s.Stale++
			case r.end.achieved:
				s.Done++
			case word == "dead":
				s.Died++
			}
		})
	})
	w.ended = nil
}

// renewLeases extends the leases of all runs. If a lease ends because Redis does not answer, the
// run's context is cancelled: another worker may have its task.
func (w *worker) renewLeases() {
	longer, now := end{what: "extend", at: -w.q.cfg.Lease.Milliseconds()}, w.now()
	ask := func(r *run) end {
		if now >= r.until {
			r.cancel(ErrLeaseLost)
		}
		return longer
	}
	w.runPerShard(slices.Collect(maps.Keys(w.runs)), ask, func(r *run, word string) {
		switch word {
		case "extended", "cancelled":
			r.until = now + w.q.cfg.Lease
			if word == "cancelled" { // the message was lost
				r.cancel(ErrCancelled)
			}
		case "stale":
			r.cancel(ErrLeaseLost)
		}
	})
}

// runPerShard ends or extends runs with runs.lua, those of one shard together. It calls then with
// the answer for each run, or "" if there is none.
func (w *worker) runPerShard(runs []*run, what func(r *run) end, then func(r *run, word string)) {
	shards := make(map[int][]*run)
	for _, r := range runs {
		shards[r.shard] = append(shards[r.shard], r)
	}
	for shard, all := range shards {
		for group := range slices.Chunk(all, maxBatch) {
			c := w.q.on(shard, "runs", "")
			c.keys = slices.Clip(c.keys)
			tokens := make([]string, len(group))
			for i, r := range group {
				e := what(r)
				tokens[i] = r.token
				c.args = append(c.args, r.task.Key, r.token, e.what, e.at, e.text)
				if e.what == "keep" {
					c.keys = append(c.keys, w.q.resultKey(shard, r.task.Key))
				}
			}
			w.ask(c, func(answer any) {
				text, _ := answer.(string)
				words := append(strings.Fields(text), make([]string, len(group))...) // "" without an answer
				for i, r := range group {
					if word := words[i]; word != "stale" || r.token == tokens[i] {
						then(r, word)
					} else { // the run has another token by now
						then(r, "")
					}
				}
			})
		}
	}
}

// MaxResult is the maximum length of a result of [SetResult], in bytes.
const MaxResult = 64 << 10

type resultKey struct{}

// SetResult stores a copy of result for the task whose handler got ctx. It replaces an earlier
// result. If the attempt succeeds, [Queue.Result] returns it for Task.KeepResult. Any goroutine may
// call SetResult while the handler runs.
//
// The error is ErrTooLarge above MaxResult, or ErrBadTask if the task does not keep results.
func SetResult(ctx context.Context, result []byte) error {
	kept, ok := ctx.Value(resultKey{}).(*atomic.Pointer[[]byte])
	if !ok {
		return wrap(ErrBadTask, "a result is set, but the task has no KeepResult")
	}
	if len(result) > MaxResult {
		return wrap(ErrTooLarge, "the result has %d bytes, of at most %d", len(result), MaxResult)
	}
	result = slices.Clone(result)
	kept.Store(&result)
	return nil
}
