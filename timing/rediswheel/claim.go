package rediswheel

import (
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
	at      time.Duration // of timer
	ready   bool          // to be claimed
	busy    bool          // being claimed
	take    bool          // to be claimed even if another owns it
	owner   string        // as last heard
	backlog bool          // there is more that is due than there were places
	renew   time.Duration // when it is to be claimed even without places
	offset  time.Duration // what to add to the worker's clock for the time since 1970 by Redis' clock
	known   bool          // offset is
	hint    time.Duration // when to look, as heard during a claim; forever if nothing was
}

// A claim is of one shard.
type claim struct {
	shard  int
	take   bool
	token  string
	most   int
	err    error
	owner  string
	fresh  bool          // Redis knew nothing of the shard
	till   time.Duration // by the worker's clock, as all here
	next   time.Duration // of a task or a lease; forever if there is none
	offset time.Duration
	tasks  []*run
}

const forever = time.Duration(1<<63 - 1)

const (
	maxClaims = 4                     // pipelines on their way: what becomes due while Redis is slow is claimed together
	minBatch  = 16                    // tasks that a shard is asked for, if there are places: few scripts for many tasks
	pace      = 10 * time.Millisecond // between claims of tasks: what becomes due within it goes into one pipeline
)

// wake has a shard claimed at a time, whatever was planned before.
func (w *worker) wake(i int, at time.Duration) {
	s := &w.shards[i]
	if s.ready {
		return
	}
	w.wheel.Stop(s.timer)
	if s.at = at; at < forever {
		s.timer = w.wheel.At(at, func() { w.makeReady(i) })
	}
}

func (w *worker) makeReady(i int) {
	if s := &w.shards[i]; !s.ready {
		s.ready = true
		w.ready = append(w.ready, i)
		w.wheel.Stop(s.timer)
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
	for k, i := range waiting {
		s := &w.shards[i]
		if s.busy { // it is claimed again when its answer is there
			w.ready = append(w.ready, i)
			continue
		}
		s.ready = false
		n := w.places.take(min(max(w.places.open()/(len(waiting)-k), minBatch), maxBatch))
		if n == 0 && s.owner == w.id && now < s.renew {
			s.backlog = true
			w.wake(i, s.renew)
			continue
		}
		w.number++
		claims = append(claims, claim{shard: i, take: s.take, most: n, token: w.id + "." + strconv.Itoa(w.number)})
		s.busy, s.take, s.hint = true, false, forever
	}
	w.setHungry()
	if len(claims) == 0 {
		return
	}
	w.next = now + pace
	w.claims++
	w.do(func(ctx context.Context) func() {
		w.claim(ctx, claims)
		return func() { w.took(claims) }
	})
}

func (w *worker) setHungry() {
	w.places.setHungry(slices.ContainsFunc(w.shards, func(s shard) bool { return s.backlog }))
}

// claim runs the scripts, on a goroutine of its own.
func (w *worker) claim(ctx context.Context, claims []claim) {
	cfg := &w.q.cfg
	gap := 0.0
	if cfg.Rate > 0 {
		gap = 1000 / cfg.Rate * float64(len(w.q.keys))
	}
	calls := make([]call, len(claims))
	for i, c := range claims {
		calls[i] = w.q.on(c.shard, "claim", "", w.id, c.take, c.token, c.most, maxBatchBytes, cfg.Lease.Milliseconds(),
			cfg.MaxDeliveries, (3 * cfg.Refresh).Milliseconds(), cfg.Refresh.Milliseconds(), gap)
	}
	sent := w.now()
	values, errs := w.q.evalAll(ctx, calls)
	middle := sent + (w.now()-sent)/2
	w.q.count(func(s *Stats) { s.Claims += uint64(len(calls)) })
	for i := range claims {
		if claims[i].err = errs[i]; errs[i] == nil {
			w.read(&claims[i], values[i], middle)
		}
	}
}

// read takes claim.lua's answer. The script is taken to have run in the middle between question and
// answer.
func (w *worker) read(c *claim, answer any, middle time.Duration) {
	f := list(answer)
	redisNow := time.Duration(toInt(f[0]))*time.Second + time.Duration(toInt(f[1]))*time.Microsecond
	c.offset = redisNow - middle
	local := func(ms string) time.Duration {
		if ms == "" {
			return forever
		}
		return time.Duration(toInt(ms))*time.Millisecond - c.offset
	}
	c.owner, c.till = f[2], local(f[3])
	if len(f) == 4 { // another owns it
		return
	}
	if c.fresh = c.owner == ""; c.fresh {
		c.owner = w.id
	}
	c.next = min(local(f[4]), local(f[5]))
	rows := answer.([]any)[8:12]
	ids, dues, states, records := list(rows[0]), list(rows[1]), list(rows[2]), list(rows[3])
	w.q.count(func(s *Stats) {
		s.Recovered, s.Died = s.Recovered+uint64(toInt(f[6])), s.Died+uint64(toInt(f[7]))
		s.Claimed += uint64(len(ids))
	})
	for i, id := range ids {
		due, st := toInt(dues[i]), parseState(states[i])
		r := &run{w: w, shard: c.shard, offset: c.offset, token: c.token, cancel: func(error) {}}
		r.task = Task{Key: id, Due: time.UnixMilli(due), Occurred: time.UnixMilli(st.occurrence),
			Attempt: int(st.attempts) + 1, Delivery: int(st.deliveries)}
		r.broken = r.task.read(records[i])
		r.late = redisNow - time.Duration(due)*time.Millisecond
		c.tasks = append(c.tasks, r)
	}
}

// took starts what was claimed, or gives it back if the worker was told to stop, and plans when to
// look again.
func (w *worker) took(claims []claim) {
	w.claims--
	var failed error
	got := 0
	for i := range claims {
		c := &claims[i]
		w.shards[c.shard].busy = false
		w.places.giveBack(c.most - len(c.tasks))
		got += len(c.tasks)
		if c.err != nil {
			failed = c.err
		}
		for _, r := range c.tasks {
			w.begin(r)
		}
		w.plan(c)
	}
	if w.fails++; failed == nil {
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

// plan decides when a shard that was claimed is looked at next.
func (w *worker) plan(c *claim) {
	s := &w.shards[c.shard]
	if c.err != nil {
		w.wake(c.shard, w.now()+pause(w.fails))
		return
	}
	if c.fresh && s.known {
		w.lost()
	}
	s.offset, s.known, s.owner, s.backlog = c.offset, true, c.owner, false
	if s.owner != w.id {
		w.wake(c.shard, min(c.till+w.turn(), s.hint))
		return
	}
	s.renew = w.now() + w.q.cfg.Refresh
	if s.backlog = c.next <= w.now() && len(c.tasks) == c.most; s.backlog {
		w.wake(c.shard, s.renew)
	} else {
		w.wake(c.shard, min(c.next, s.renew, s.hint))
	}
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
			w.makeReady(i)
			if open*2 >= w.places.total {
				w.next = 0
			}
		}
	}
}
