package rediswheel

import (
	"context"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// A shard is what a worker knows of one. It has a timer on the worker's wheel: for one that it
// owns, when the next task is due, a lease runs out or a refresh is.
type shard struct {
	timer   timing.Timer
	at      time.Duration // of timer
	wish    time.Duration // when there is something to do, which is before at if claims would come too soon one after another
	ready   bool          // to be claimed
	busy    bool          // being claimed
	mine    bool
	owner   string        // as last heard
	take    bool          // though another may own it
	help    bool          // another owns it, and has too much
	backlog bool          // there is more that is due than there were places
	last    time.Duration // when it was claimed
	renew   time.Duration // when the ownership is to be renewed, at the latest
	offset  time.Duration // what to add to the worker's clock for milliseconds since 1970 by Redis' clock
	known   bool          // offset is
	first   time.Duration // of a hint that came while busy; 0 if none did
}

// claimed is what a claim of several shards gave.
type claimed struct {
	claims []claim
	places int // reserved and not used
}

// A claim is of one shard.
type claim struct {
	shard  int
	mode   string
	most   int
	done   []ended // that go along
	err    error
	owner  string
	fresh  bool          // Redis knew nothing of the shard
	till   time.Duration // by the worker's clock, as all here
	next   time.Duration // forever if there is none
	offset time.Duration
	tasks  []run
}

const forever = time.Duration(1<<63 - 1)

// wake has a shard claimed at a time, whatever was planned before.
func (w *worker) wake(i int, at time.Duration) {
	s := &w.loop.shards[i]
	if s.ready {
		return
	}
	w.loop.wheel.Stop(s.timer)
	s.at, s.wish = at, at
	w.ends.expect(i, at)
	if at < forever {
		s.timer = w.loop.wheel.At(at, func() { w.makeReady(i) })
	}
}

func (w *worker) makeReady(i int) {
	if s := &w.loop.shards[i]; !s.ready {
		s.ready = true
		w.loop.wheel.Stop(s.timer)
		w.loop.ready++
	}
}

// maxClaims is how many pipelines of claims are on their way at most: when Redis is slow, what
// becomes due meanwhile is claimed together.
const maxClaims = 4

// pace is how far apart claims of a shard are, unless it has a backlog: what becomes due within it
// goes with one script. A task that comes alone is not late for that. Of a shard that has much to do
// they are further apart.
const (
	pace     = 10 * time.Millisecond
	busyPace = 16 * time.Millisecond
)

// wakePaced has a shard claimed at a time, or as soon after its last claim as it may be.
func (w *worker) wakePaced(i int, at, pace time.Duration) {
	s := &w.loop.shards[i]
	w.wake(i, max(at, s.last+pace))
	s.wish = at
}

// joinFor is how long before its time a shard that has something to do already is claimed with others: one
// pipeline of several scripts costs Redis less than several. From then on they stay together.
const joinFor = busyPace / 2

// join has shards claimed with those that are ready.
func (w *worker) join() {
	now := w.now()
	for i := range w.loop.shards {
		if s := &w.loop.shards[i]; s.mine && !s.ready && !s.busy && s.wish <= now && s.at <= now+joinFor {
			w.makeReady(i)
		}
	}
}

// minBatch is for how many places a shard is asked at least, if there are as many: when all shards
// have a backlog, few are asked for many tasks, not all for few.
const minBatch = 16

// claimReady claims the shards whose time has come, as far as there are places for tasks. Without
// places, it only renews.
func (w *worker) claimReady(ctx context.Context) {
	if w.loop.ready == 0 || w.loop.busy >= maxClaims {
		return
	}
	w.join()
	var claims []claim
	reserved := w.reserve(min(w.loop.ready*maxBatch, w.q.cfg.Concurrency), w.riders())
	left, shards := reserved, w.loop.ready
	for k := range w.loop.shards {
		i := (w.loop.turn + k) % len(w.loop.shards)
		s := &w.loop.shards[i]
		if !s.ready || s.busy {
			continue
		}
		n := max(min(max((left+shards-1)/shards, minBatch), left, maxBatch), 0)
		left, shards = left-n, shards-1
		w.unready(s)
		if n == 0 && w.putOff(i, s) {
			continue
		}
		claims = append(claims, claim{shard: i, mode: s.mode(), most: n, done: w.ends.ride(i)})
		s.busy, s.last = true, w.now()
	}
	w.loop.turn++
	if len(claims) == 0 {
		w.release(reserved)
		return
	}
	w.loop.busy++
	go func() { w.claimed <- w.claim(ctx, claims, left) }()
}

// riders is how many ends can go along with the claims of the shards that are ready.
func (w *worker) riders() (n int) {
	for i := range w.loop.shards {
		if s := &w.loop.shards[i]; s.ready && !s.busy {
			n += w.ends.riders(i)
		}
	}
	return n
}

// putOff leaves a shard that there are no places for, unless its ownership has to be renewed.
func (w *worker) putOff(i int, s *shard) bool {
	switch {
	case s.help && !s.take:
		s.help = false
		w.wake(i, forever)
	case s.mine && w.now() < s.renew:
		s.backlog = true
		w.wake(i, s.renew)
	default:
		return false
	}
	return true
}

func (w *worker) unready(s *shard) {
	s.ready = false
	w.loop.ready--
}

func (s *shard) mode() string {
	switch {
	case s.take:
		return "take"
	case s.help:
		return "help"
	}
	return "renew"
}

// claim runs the scripts. It must not touch what belongs to the loop.
func (w *worker) claim(ctx context.Context, claims []claim, unused int) claimed {
	cfg := &w.q.cfg
	calls := make([]call, len(claims))
	for i, c := range claims {
		calls[i] = w.q.on(c.shard, scriptClaim, "", w.id, c.mode, c.most, maxBatchBytes, cfg.Lease.Milliseconds(),
			cfg.MaxDeliveries, (3 * cfg.Refresh).Milliseconds(), cfg.Refresh.Milliseconds())
		calls[i].args = appendDone(calls[i].args, c.done)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Lease)
	defer cancel()
	sent := w.now()
	values, errs := evalAll(ctx, w.client, calls)
	middle := sent + (w.now()-sent)/2
	w.q.counts.claims.Add(uint64(len(calls)))
	for i := range claims {
		c := &claims[i]
		if c.err = errs[i]; c.err == nil {
			w.read(c, values[i], middle)
		} else {
			w.ends.putBack(c.done)
		}
		unused += c.most - len(c.tasks)
	}
	return claimed{claims, unused}
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
	if c.fresh = c.owner == "" && c.mode != "help"; c.fresh {
		c.owner = w.id
	}
	c.next = min(local(f[4]), local(f[5]))
	w.q.counts.recovered.Add(uint64(toInt(f[6])))
	w.q.counts.died.Add(uint64(toInt(f[7])))
	w.ends.count(c.done, f[8])
	for i, g := range readGiven(answer) {
		r := run{w: w, shard: c.shard, offset: c.offset, id: g.id, token: g.token, place: i}
		r.task = Task{Key: fromLine(g.id), Due: time.UnixMilli(g.due), Attempt: int(g.attempts) + 1, Delivery: int(g.deliveries),
			Occurred: time.UnixMilli(g.occurrence)}
		r.broken = r.task.read(g.record)
		r.late = redisNow - time.Duration(g.due)*time.Millisecond
		c.tasks = append(c.tasks, r)
	}
	w.q.counts.claimed.Add(uint64(len(c.tasks)))
}

// took starts what was claimed, and plans when to look again.
func (w *worker) took(ctx context.Context, c claimed) {
	w.loop.busy--
	failed := false
	for i := range c.claims {
		one := &c.claims[i]
		for k := range one.tasks {
			w.flights.begin(ctx, &one.tasks[k])
		}
		if one.err != nil {
			if !failed {
				w.fail(one.err)
			}
			failed = true
		}
		w.noteLoss(one)
		w.plan(one)
	}
	w.loop.fails++
	if !failed {
		w.loop.fails = 0
	}
	w.release(c.places)
	if w.places() > 0 {
		w.refill() // what became free during the claim found its shards busy
	}
	w.cry()
}

// plan decides when a shard that was claimed is looked at next.
func (w *worker) plan(c *claim) {
	s := &w.loop.shards[c.shard]
	s.busy, s.take = false, false
	hinted := s.first
	s.first = 0
	if c.err != nil {
		if !s.ready {
			w.wake(c.shard, w.now()+pause(w.loop.fails))
		}
		return
	}
	s.offset, s.known, s.owner = c.offset, true, c.owner
	refresh := w.q.cfg.Refresh
	overdue := c.next <= w.now()
	s.help = c.mode == "help" && overdue && len(c.tasks) > 0
	if c.mode == "help" && !s.mine {
		if s.help {
			s.backlog = true
		}
		w.wake(c.shard, forever)
		if c.till <= w.now() { // nobody owns it
			s.help = false
			w.makeReady(c.shard)
		}
		return
	}
	if c.owner != w.id {
		s.mine, s.backlog = false, false
		w.ears.want(c.shard, false)
		if w.wake(c.shard, forever); hinted != 0 { // its owner may have left meanwhile
			w.makeReady(c.shard)
		}
		return
	}
	if !s.mine && c.shard == firstShard {
		w.watchAt(w.now()) // whoever owned it may have owned others
		w.say("first " + w.id)
	}
	s.mine = true
	w.ears.want(c.shard, true)
	s.renew = w.now() + refresh
	s.backlog = overdue && len(c.tasks) == c.most
	at := min(c.next, s.renew)
	if hinted != 0 {
		at = min(at, hinted)
	}
	if s.backlog {
		at = s.renew
	}
	if !s.ready {
		after := pace
		if len(c.tasks) > 1 {
			after = busyPace
		}
		w.wakePaced(c.shard, at, after)
	}
	if s.backlog {
		w.ends.expect(c.shard, w.now()+pace) // which will free places
	}
}

// refill claims from shards with a backlog when places have become free: soon, as then more may be
// free, and one script can fill them all.
func (w *worker) refill() {
	if w.loop.soon {
		return
	}
	w.loop.soon = true
	wait := time.Millisecond
	if w.places()*2 >= w.q.cfg.Concurrency {
		wait = 0
	}
	w.loop.wheel.At(w.now()+wait, func() {
		w.loop.soon = false
		for i := range w.loop.shards {
			if s := &w.loop.shards[i]; s.backlog && !s.busy {
				s.backlog = false
				w.makeReady(i)
			}
		}
	})
}

// giveBack returns what was claimed when the worker had been told to stop. Shards that it came to own
// are given up with the others.
func (w *worker) giveBack(c claimed) {
	w.loop.busy--
	for i := range c.claims {
		s, one := &w.loop.shards[c.claims[i].shard], &c.claims[i]
		s.mine = s.mine || one.err == nil && one.owner == w.id
		for k := range c.claims[i].tasks {
			r := &c.claims[i].tasks[k]
			w.flights.add(r)
			w.ends.put(r, end{what: "release", at: r.task.Due.UnixMilli()})
		}
	}
	w.release(c.places)
}

// pause is how long to wait after n failures in a row.
func pause(n int) time.Duration {
	d := min(50*time.Millisecond<<min(n, 7), 2*time.Second)
	return d/2 + jitter(d/2)
}
