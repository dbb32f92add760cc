package rediswheel

import (
	"crypto/rand"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/timing"
)

// A shard is a worker's view of a shard. Its timer is on the worker's wheel. For a shard that the
// worker owns, it fires when a task is due, a lease expires, or the ownership must be renewed; for
// another shard, when its owner may be gone.
type shard struct {
	timer timing.Timer
	ready bool          // to be claimed as soon as a place is free
	busy  bool          // being claimed, or unclaimed
	few   int           // if positive, the maximum number of tasks of a claim: an answer was lost
	owner string        // the last known owner
	take  bool          // to be claimed even if another worker owns it
	renew time.Duration // when to claim it even without free places
	shun  time.Duration // until then this worker leaves it to others

	clock onredis.Clock // of the shard's server
}

// minBatch is how many tasks are requested from a shard if there are places: few scripts for many
// tasks.
const minBatch = 16

// look schedules a claim of a shard, unless an earlier one is scheduled.
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

// claim claims the shards whose time has come, in random order, as far as there are places for
// tasks. Without places it only renews.
func (w *worker) claim() {
	if w.stopping {
		return
	}
	var ready []int
	for _, i := range mathrand.Perm(len(w.shards)) {
		if s := &w.shards[i]; !s.busy && s.ready {
			ready = append(ready, i)
		}
	}
	places := w.places.take(len(ready) * maxBatch)
	for k, i := range ready {
		s := &w.shards[i]
		n := min(max(places/(len(ready)-k), minBatch), maxBatch, places)
		if s.few > 0 {
			n = min(n, s.few)
		}
		places -= n
		if n > 0 || w.now() >= s.renew {
			w.claimShard(i, n)
		} else {
			w.look(i, s.renew)
		}
	}
	w.places.giveBack(places, 0)
}

// claimShard requests up to n tasks, for which there are places.
func (w *worker) claimShard(i, n int) {
	s, cfg := &w.shards[i], &w.q.cfg
	token, until := rand.Text(), w.now()+cfg.Lease
	c := w.q.on(i, "claim", "", w.id, s.take && n > 0, token, n, maxBatchBytes, cfg.Lease.Milliseconds(),
		cfg.MaxDeliveries, cfg.ownership().Milliseconds(), cfg.Refresh.Milliseconds(), cfg.Rate/float64(len(w.shards)))
	w.wheel.Stop(s.timer)
	s.busy, s.take, s.ready = true, false, false
	w.q.count(func(s *Stats) { s.Claims++ })
	w.ask(c, func(answer any) {
		rows, ok := answer.([]any)
		if !ok {
			w.places.giveBack(n, 0)
			w.unclaim(i, token, s.few == 1)
			s.few = 1
			return
		}
		if s.few *= 2; s.few > maxBatch {
			s.few = 0
		}
		got := w.claimed(i, run{w: w, shard: i, until: until}, n, rows)
		w.places.giveBack(n-got, 0)
		w.claimEnded(i)
	})
}

// unclaim gives back the tasks of a claim without an answer, once Redis answers. Until then the
// worker makes no other claim of the shard, whose answer would be lost, too.
//
// It may be because of a task that the answer was lost: a record so large that it cannot be read in
// time. So the next claim is for one task. If that answer is lost, too, the task stays where it is
// until its lease ends, and others come first. The claims after that are for twice as many tasks
// each time.
func (w *worker) unclaim(i int, token string, later bool) {
	s := &w.shards[i]
	ask := func() {
		w.ask(w.q.on(i, "unclaim", "", token, later), func(answer any) {
			if answer == nil && !w.stopping {
				w.unclaim(i, token, later)
				return
			}
			s.ready = true
			w.claimEnded(i)
		})
	}
	if w.stopping {
		ask()
	} else {
		w.afterPause(ask)
	}
}

// claimEnded ends what claimShard began.
func (w *worker) claimEnded(i int) {
	s := &w.shards[i]
	s.busy = false
	if w.stopping {
		w.leave()
	} else if w.now() < s.shun {
		w.decline(i)
	}
	w.balance()
}

// claimed processes the answer of claim.lua. It begins a run like the given one for each task, and
// schedules the next look at the shard. It returns how many tasks were claimed.
func (w *worker) claimed(i int, like run, most int, answer []any) int {
	s, f, now := &w.shards[i], list(answer), w.now()
	redisNow, look := millis(f[0]), now+millis(f[2])
	lease := w.q.cfg.Lease
	if by := s.clock.Step(redisNow, like.until-lease, now); by.Abs() > lease/2 && now >= w.clockQuiet {
		w.clockQuiet = now + lease // other shards may have the same clock
		w.q.report(wrap(ErrClock, "by about %v: tasks may be late by a lease, or be given again", by.Round(time.Second)))
	}
	if len(f) == 3 { // another worker owns it
		s.owner, s.renew = f[1], look+w.turn()
		w.look(i, s.renew)
		return 0
	}
	if f[1] == "" && s.owner != "" || f[10] == "1" {
		w.lost()
	}
	ids, dues, states, records := list(answer[6]), list(answer[7]), list(answer[8]), list(answer[9])
	w.q.count(func(s *Stats) {
		s.Recovered, s.Died = s.Recovered+uint64(toInt(f[4])), s.Died+uint64(toInt(f[5]))
		s.Claimed, s.InFlight = s.Claimed+uint64(len(ids)), s.InFlight+len(ids)
		if len(ids) > 0 { // the first is the latest
			s.LatenessMax = max(s.LatenessMax, redisNow-millis(dues[0]))
		}
	})
	for k, id := range ids {
		r := like
		r.offset, r.task = redisNow-now, Task{Key: id, Due: time.UnixMilli(toInt(dues[k]))}
		r.token, _, _ = strings.Cut(states[k], " ")
		r.task.readState(states[k])
		w.begin(&r, records[k])
	}
	s.owner, s.renew = w.id, now+w.q.cfg.Refresh
	if f[3] == "1" && len(ids) == most {
		s.ready, look = true, s.renew
	}
	w.look(i, look)
	return len(ids)
}
