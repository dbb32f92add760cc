package rediswheel

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// A shard is what a worker knows of one. Its timer is on the worker's wheel. For a shard that the
// worker owns, it fires when a task is due, a lease runs out, or the ownership has to be renewed;
// for another, when its owner may be gone.
type shard struct {
	timer   timing.Timer
	at      time.Duration // of timer; while busy, when to look as heard meanwhile
	ready   bool          // to be claimed, without a timer
	busy    bool          // being claimed, without a timer
	take    bool          // to be claimed even if another owns it
	owner   string        // as last heard
	backlog bool          // there is more that is due than there were places
	renew   time.Duration // when it is to be claimed even without places
	offset  time.Duration // what to add to the worker's clock for the time since 1970 by Redis' clock; 0: not known
}

// A claim is of one shard.
type claim struct {
	shard int
	most  int // tasks
	token string
}

const forever = time.Duration(1<<63 - 1)

const (
	maxClaims = 4                    // pipelines on their way: what becomes due while Redis is slow is claimed together
	minBatch  = 16                   // tasks that a shard is asked for, if there are places: few scripts for many tasks
	pace      = 5 * time.Millisecond // between claims of tasks: what becomes due within it goes into one pipeline
)

// wake has a shard claimed at a time, whatever was planned before; if it is being claimed, after
// that and no later than heard before.
func (w *worker) wake(i int, at time.Duration) {
	switch s := &w.shards[i]; {
	case s.busy:
		s.at = min(s.at, at)
	case !s.ready:
		w.wheel.Stop(s.timer)
		if s.at = at; at < forever {
			s.timer = w.wheel.At(at, func() {
				s.ready = true
				w.ready = append(w.ready, i)
			})
		}
	}
}

// claimReady claims the shards whose time has come, as far as there are places for tasks. Without
// places it only renews.
func (w *worker) claimReady() {
	now := w.now()
	if len(w.ready) == 0 || w.claims >= maxClaims || w.stopping {
		return
	}
	if now < w.next {
		if !w.wheel.Pending(w.pacer) {
			w.pacer = w.wheel.At(w.next, func() {}) // to come back
		}
		return
	}
	waiting := w.ready
	w.ready = nil
	var claims []claim
	var calls []call
	for k, i := range waiting {
		s := &w.shards[i]
		s.ready = false
		n := w.places.take(min(max(w.places.open()/(len(waiting)-k), minBatch), maxBatch))
		if n == 0 && s.owner == w.id && now < s.renew {
			s.backlog = true
			w.wake(i, s.renew)
			continue
		}
		w.number++
		c := claim{i, n, w.id + "." + strconv.Itoa(w.number)}
		claims, calls = append(claims, c), append(calls, w.claiming(c, s.take))
		s.busy, s.take, s.at = true, false, forever
	}
	w.setHungry()
	if len(claims) == 0 {
		return
	}
	w.next = now + pace
	w.claims++
	w.do(func(ctx context.Context) func() {
		sent := w.now()
		values, errs := w.q.evalAll(ctx, calls)
		middle := sent + (w.now()-sent)/2
		return func() { w.took(claims, values, errs, middle) }
	})
}

func (w *worker) setHungry() {
	w.places.setHungry(slices.ContainsFunc(w.shards, func(s shard) bool { return s.backlog }))
}

// claiming makes the call of a claim.
func (w *worker) claiming(c claim, take bool) call {
	cfg := &w.q.cfg
	gap := 0.0
	if cfg.Rate > 0 {
		gap = 1000 / cfg.Rate * float64(len(w.shards))
	}
	return w.q.on(c.shard, "claim", "", w.id, take, c.token, c.most, maxBatchBytes, cfg.Lease.Milliseconds(),
		cfg.MaxDeliveries, (3 * cfg.Refresh).Milliseconds(), cfg.Refresh.Milliseconds(), gap)
}

// took takes the answers to claims. The scripts are taken to have run in the middle between
// question and answer.
func (w *worker) took(claims []claim, answers []any, errs []error, middle time.Duration) {
	w.claims--
	w.q.count(func(s *Stats) { s.Claims += uint64(len(claims)) })
	var failed error
	got := 0
	for i, c := range claims {
		s, n := &w.shards[c.shard], 0
		s.busy = false
		if errs[i] == nil {
			n = w.read(c, answers[i].([]any), middle)
		} else {
			failed = errs[i]
			w.wake(c.shard, w.now()+pause(w.fails))
		}
		w.places.giveBack(c.most - n)
		got += n
	}
	if failed == nil {
		w.fails = 0
	} else {
		w.fail(failed)
	}
	if w.stopping {
		w.tell()
		w.leave()
		return
	}
	if got == 0 {
		w.next = 0 // a task that comes alone does not wait
	}
	w.setHungry()
	w.refill() // what became free during the claim found its shards busy
	w.balance()
	w.cry()
}

// read takes claim.lua's answer. It starts what was claimed, or gives it back if the worker was
// told to stop, and plans when to look at the shard again. It returns how many tasks were claimed.
func (w *worker) read(c claim, answer []any, middle time.Duration) int {
	s, f := &w.shards[c.shard], list(answer)
	redisNow := time.Duration(toInt(f[0]))*time.Second + time.Duration(toInt(f[1]))*time.Microsecond
	lost := f[2] == "" && s.offset != 0
	s.offset, s.owner, s.backlog = redisNow-middle, cmp.Or(f[2], w.id), false
	local := func(ms string) time.Duration {
		if ms == "" {
			return forever
		}
		return time.Duration(toInt(ms))*time.Millisecond - s.offset
	}
	if len(f) == 4 { // another owns it
		w.wake(c.shard, min(local(f[3])+w.turn(), s.at))
		return 0
	}
	ids, dues, states, records := list(answer[8]), list(answer[9]), list(answer[10]), list(answer[11])
	w.q.count(func(s *Stats) {
		s.Recovered, s.Died = s.Recovered+uint64(toInt(f[6])), s.Died+uint64(toInt(f[7]))
		s.Claimed, s.InFlight = s.Claimed+uint64(len(ids)), s.InFlight+len(ids)
		if len(ids) > 0 { // the first is the latest
			s.LatenessMax = max(s.LatenessMax, redisNow-time.Duration(toInt(dues[0]))*time.Millisecond)
		}
	})
	for i, id := range ids {
		w.begin(&run{w: w, shard: c.shard, key: id, due: time.UnixMilli(toInt(dues[i])), state: states[i], record: records[i],
			token: c.token, offset: s.offset, cancel: func(error) {}})
	}
	if lost {
		w.lost()
	}
	s.renew = w.now() + w.q.cfg.Refresh
	next := min(local(f[4]), local(f[5])) // of a task or a lease
	if s.backlog = next <= w.now() && len(ids) == c.most; s.backlog {
		next = s.renew
	}
	w.wake(c.shard, min(next, s.renew, s.at))
	return len(ids)
}

// refill claims from shards with a backlog when places have become free. It waits for more to
// become free, unless half of them are: one script can fill them all.
func (w *worker) refill() {
	open := w.places.open()
	if open == 0 {
		return
	}
	for i := range w.shards {
		if s := &w.shards[i]; s.backlog && !s.busy {
			s.backlog = false
			w.wake(i, 0)
			if open*2 >= w.places.total {
				w.next = 0
			}
		}
	}
}
