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
	mine    bool
	owner   string        // as last heard
	mode    string        // of the next claim; "" means own
	backlog bool          // there is more that is due than there were places
	renew   time.Duration // when the ownership has to be renewed
	offset  time.Duration // what to add to the worker's clock for the time since 1970 by Redis' clock
	known   bool          // offset is
	hint    time.Duration // when something is due that was heard of during a claim; forever if nothing
}

// A claim is of one shard.
type claim struct {
	shard  int
	mode   string
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
	s := &w.loop.shards[i]
	if s.ready {
		return
	}
	w.loop.wheel.Stop(s.timer)
	if s.at = at; at < forever {
		s.timer = w.loop.wheel.At(at, func() { w.makeReady(i) })
	}
}

func (w *worker) makeReady(i int) {
	if s := &w.loop.shards[i]; !s.ready {
		s.ready = true
		w.loop.wheel.Stop(s.timer)
	}
}

// claimReady claims the shards whose time has come, as far as there are places for tasks. Without
// places it only renews.
func (w *worker) claimReady(ctx context.Context) {
	now, shards := w.now(), 0
	for i := range w.loop.shards { // one that is busy is claimed again when its answer is there
		if s := &w.loop.shards[i]; s.ready && !s.busy {
			shards++
		}
	}
	if shards == 0 || w.loop.claims >= maxClaims {
		return
	}
	if now < w.loop.next {
		w.loop.wheel.At(w.loop.next, func() {}) // to come back
		return
	}
	left := w.places.take(shards * maxBatch)
	reserved := left
	var claims []claim
	for k := range w.loop.shards {
		i := (w.loop.turn + k) % len(w.loop.shards)
		s := &w.loop.shards[i]
		if !s.ready || s.busy {
			continue
		}
		n := min(max((left+shards-1)/shards, minBatch), left, maxBatch)
		left, shards = left-n, shards-1
		s.ready = false
		if n == 0 && (s.mine && now < s.renew || s.mode == "help") {
			s.backlog, s.mode = s.mine, ""
			w.places.setHungry(true)
			w.wake(i, max(s.renew, now+pace))
			continue
		}
		c := claim{shard: i, mode: s.mode, most: n}
		if c.mode == "" {
			c.mode = "own"
		}
		w.loop.number++
		c.token = w.id + "." + strconv.Itoa(w.loop.number)
		s.busy, s.mode, s.hint = true, "", forever
		claims = append(claims, c)
	}
	w.loop.turn++
	used := 0
	for _, c := range claims {
		used += c.most
	}
	w.places.giveBack(reserved - used)
	if len(claims) == 0 {
		return
	}
	w.loop.next = now + pace
	w.loop.claims++
	go func() {
		w.claim(ctx, claims)
		w.claimed <- claims
	}()
}

// claim runs the scripts. It must not touch what belongs to the loop.
func (w *worker) claim(ctx context.Context, claims []claim) {
	cfg := &w.q.cfg
	gap := 0.0
	if cfg.Rate > 0 {
		gap = 1000 / cfg.Rate * float64(len(w.q.keys))
	}
	calls := make([]call, len(claims))
	for i, c := range claims {
		calls[i] = w.q.on(c.shard, scriptClaim, "", w.id, c.mode, c.token, c.most, maxBatchBytes, cfg.Lease.Milliseconds(),
			cfg.MaxDeliveries, (3 * cfg.Refresh).Milliseconds(), cfg.Refresh.Milliseconds(), gap)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Lease)
	defer cancel()
	sent := w.now()
	values, errs := w.q.evalAll(ctx, calls)
	middle := sent + (w.now()-sent)/2
	w.q.counts.claims.Add(uint64(len(calls)))
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
	c.owner, c.till, c.next = f[2], local(f[3]), forever
	if len(f) == 4 { // another owns it
		return
	}
	if c.fresh = c.owner == "" && c.mode != "help"; c.fresh {
		c.owner = w.id
	}
	c.next = min(local(f[4]), local(f[5]))
	w.q.counts.recovered.Add(uint64(toInt(f[6])))
	w.q.counts.died.Add(uint64(toInt(f[7])))
	rows := answer.([]any)[8:12]
	ids, dues, states, records := list(rows[0]), list(rows[1]), list(rows[2]), list(rows[3])
	for i, id := range ids {
		due, st := toInt(dues[i]), parseState(states[i])
		r := &run{w: w, shard: c.shard, offset: c.offset, token: c.token}
		r.task = Task{Key: id, Due: time.UnixMilli(due), Occurred: time.UnixMilli(st.occurrence),
			Attempt: int(st.attempts) + 1, Delivery: int(st.deliveries)}
		r.broken = r.task.read(records[i])
		r.late = redisNow - time.Duration(due)*time.Millisecond
		c.tasks = append(c.tasks, r)
	}
	w.q.counts.claimed.Add(uint64(len(c.tasks)))
}

// took starts what was claimed, and plans when to look again.
func (w *worker) took(ctx context.Context, claims []claim) {
	w.loop.claims--
	var failed error
	unused, got := 0, 0
	for i := range claims {
		c := &claims[i]
		for _, r := range c.tasks {
			w.flights.begin(ctx, r)
		}
		got += len(c.tasks)
		unused += c.most - len(c.tasks)
		if c.err != nil {
			failed = c.err
		}
		if c.fresh && w.loop.shards[c.shard].known {
			notify(w.losses)
		}
	}
	if w.loop.fails++; failed == nil {
		w.loop.fails = 0
	} else {
		w.fail(failed)
	}
	if got == 0 {
		w.loop.next = 0 // a task that comes alone does not wait
	}
	for i := range claims {
		w.plan(&claims[i])
	}
	w.places.giveBack(unused)
	w.places.setHungry(slices.ContainsFunc(w.loop.shards, func(s shard) bool { return s.backlog }))
	w.refill() // what became free during the claim found its shards busy
	w.balance()
	w.announce(claims)
	w.askForHelp()
}

// plan decides when a shard that was claimed is looked at next.
func (w *worker) plan(c *claim) {
	s := &w.loop.shards[c.shard]
	s.busy = false
	if c.err != nil {
		w.wake(c.shard, w.now()+pause(w.loop.fails))
		return
	}
	s.offset, s.known, s.owner = c.offset, true, c.owner
	overdue := c.next <= w.now() && len(c.tasks) == c.most
	if c.mode == "help" && !s.mine {
		if s.backlog = overdue && c.most > 0; s.backlog {
			s.mode = "help"
		}
		w.wake(c.shard, max(c.till, w.now()+pace)+jitter(w.q.cfg.Refresh))
		return
	}
	s.mine, s.backlog = c.owner == w.id, false
	if !s.mine {
		w.wake(c.shard, min(c.till+time.Millisecond+jitter(w.q.cfg.Refresh), s.hint))
		return
	}
	s.renew = w.now() + w.q.cfg.Refresh
	if s.backlog = overdue; overdue {
		w.wake(c.shard, s.renew)
	} else {
		w.wake(c.shard, min(c.next, s.renew, s.hint))
	}
}

// refill claims from shards with a backlog when places have become free. It waits for more to
// become free, unless half of them are: one script can fill them all.
func (w *worker) refill() {
	open := w.places.open()
	if open <= 0 {
		return
	}
	for i := range w.loop.shards {
		if s := &w.loop.shards[i]; s.backlog && !s.busy {
			s.backlog = false
			w.makeReady(i)
			if open*2 >= w.places.total {
				w.loop.next = 0
			}
		}
	}
}

// giveBack returns what was claimed when the worker had been told to stop. Shards that it came to
// own are given up with the others.
func (w *worker) giveBack(claims []claim) {
	w.loop.claims--
	for i := range claims {
		c := &claims[i]
		s := &w.loop.shards[c.shard]
		s.mine = s.mine || c.err == nil && c.owner == w.id
		for _, r := range c.tasks {
			w.flights.add(r)
			w.ends.put(r, end{what: "release", at: r.task.Due.UnixMilli()})
		}
		w.places.giveBack(c.most - len(c.tasks))
	}
}
