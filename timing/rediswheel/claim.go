package rediswheel

import (
	"cmp"
	mathrand "math/rand/v2"
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
	ready   bool          // the timer has fired
	busy    bool          // being claimed
	owner   string        // as last heard
	take    bool          // to be claimed even if another owns it
	backlog bool          // to be claimed as soon as there is a place
	renew   time.Duration // when it is to be claimed even without places
	offset  time.Duration // what to add to the worker's clock for the time since 1970 by Redis' clock; 0: not known
}

// minBatch is how many tasks a shard is asked for, if there are places: few scripts for many tasks.
const minBatch = 16

// look has a shard claimed at a time, or when that was planned already, if it is earlier.
func (w *worker) look(i int, at time.Duration) {
	s := &w.shards[i]
	if planned, ok := w.wheel.When(s.timer); !ok || at < planned {
		w.wheel.Stop(s.timer)
		s.timer = w.wheel.At(at, func() { s.ready = true })
	}
}

func (w *worker) lookAtAll() {
	for i := range w.shards {
		w.look(i, w.now())
	}
}

// claim claims the shards whose time has come, none always first, as far as there are places for
// tasks. Without places it only renews.
func (w *worker) claim() {
	if w.stopping {
		return
	}
	var ready []int
	open := w.places.open()
	for _, i := range mathrand.Perm(len(w.shards)) {
		if s := &w.shards[i]; !s.busy && (s.ready || s.backlog && open > 0) {
			ready = append(ready, i)
		}
	}
	for k, i := range ready {
		s := &w.shards[i]
		s.ready = false
		n := w.places.take(min(max(w.places.open()/(len(ready)-k), minBatch), maxBatch))
		if n > 0 || w.now() >= s.renew {
			w.claimShard(i, n)
			continue
		}
		s.backlog = true
		w.look(i, s.renew)
	}
	w.places.setHungry(slices.ContainsFunc(w.shards, func(s shard) bool { return s.backlog }))
}

// claimShard asks for up to n tasks, for which there are places.
func (w *worker) claimShard(i, n int) {
	s, cfg := &w.shards[i], &w.q.cfg
	w.number++
	token := w.id + "." + strconv.Itoa(w.number)
	gap := 0.0
	if cfg.Rate > 0 {
		gap = 1000 / cfg.Rate * float64(len(w.shards))
	}
	c := w.q.on(i, "claim", "", w.id, s.take && n > 0, token, n, maxBatchBytes, cfg.Lease.Milliseconds(),
		cfg.MaxDeliveries, (3 * cfg.Refresh).Milliseconds(), cfg.Refresh.Milliseconds(), gap)
	w.wheel.Stop(s.timer)
	s.busy, s.take, s.backlog = true, false, false
	w.q.count(func(s *Stats) { s.Claims++ })
	w.ask(c, func(answer any, at time.Duration) {
		s.busy = false
		got := 0
		if rows, ok := answer.([]any); ok {
			got = w.claimed(i, token, n, rows, at)
		} else {
			w.afterPause(func() { s.ready = true })
		}
		w.places.giveBack(n - got)
		if w.stopping {
			w.leave()
		}
		w.balance()
	})
}

// claimed takes claim.lua's answer. It starts what was claimed, or gives it back if the worker was
// told to stop, and plans when to look at the shard again. It returns how many tasks were claimed.
func (w *worker) claimed(i int, token string, most int, answer []any, at time.Duration) int {
	s, f := &w.shards[i], list(answer)
	redisNow := time.Duration(toInt(f[0]))*time.Second + time.Duration(toInt(f[1]))*time.Microsecond
	lost := f[2] == "" && s.offset != 0
	s.offset, s.owner = redisNow-at, cmp.Or(f[2], w.id)
	if len(f) == 4 { // another owns it
		s.renew = s.local(f[3]) + w.turn()
		w.look(i, s.renew)
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
	for k, id := range ids {
		task := Task{Key: id, Due: time.UnixMilli(toInt(dues[k]))}
		task.readState(states[k])
		w.begin(&run{w: w, shard: i, task: task, token: token, offset: s.offset}, records[k])
	}
	if lost {
		w.lost()
	}
	s.renew = w.now() + w.q.cfg.Refresh
	next := s.renew
	for _, ms := range f[4:6] { // of a task, and of a lease
		if ms != "" {
			next = min(next, s.local(ms))
		}
	}
	if s.backlog = next <= w.now() && len(ids) == most; s.backlog {
		next = s.renew
	}
	w.look(i, next)
	return len(ids)
}

// local is a time of Redis, in ms, on the worker's clock, or its beginning while the offset is not
// known.
func (s *shard) local(ms string) time.Duration {
	if s.offset == 0 {
		return 0
	}
	return time.Duration(toInt(ms))*time.Millisecond - s.offset
}
