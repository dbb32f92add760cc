package rediswheel

import (
	"context"
	"slices"
	"sync"
	"time"
)

// An end is how a run ended, for done.lua (done) or nack.lua (all else).
type end struct {
	what   string
	at     int64 // when the task is due next, in milliseconds; 0 for done, never again; negative: see delay
	delay  int64 // milliseconds from now
	reason string
}

type ended struct {
	*run
	end
}

// ends tells Redis how runs ended. What was done goes along with the next claim of its shard, if
// that is soon, and else with a script of its own, as all other ends do: the busier a worker is, the
// more of them go into one script.
type ends struct {
	w      *worker
	lock   sync.Mutex
	shards []endedShard
	queued int           // in shards
	open   int           // runs that Redis has not heard of, queued or sent
	hurry  bool          // nothing waits any more
	sent   time.Duration // when a script was sent
	some   chan struct{} // there is something new that has to be sent
	none   chan struct{} // open has become 0
}

// endedShard are the ends in one shard.
type endedShard struct {
	done, other []ended
	since       time.Duration // when the first of them came
	ride        time.Duration // when the shard is claimed next
}

func (e *ends) init() {
	e.some, e.none = make(chan struct{}, 1), make(chan struct{}, 1)
	e.shards = make([]endedShard, len(e.w.q.keys))
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (e *ends) put(r *run, how end) {
	e.lock.Lock()
	e.open++
	urgent := e.keep(ended{r, how})
	e.lock.Unlock()
	if urgent {
		notify(e.some)
	}
}

// keep queues an end, and reports whether that changes when something has to be sent.
func (e *ends) keep(d ended) bool {
	s := &e.shards[d.shard]
	first := len(s.done)+len(s.other) == 0
	if first {
		s.since = e.w.now()
	}
	if d.what == "done" {
		s.done = append(s.done, d)
	} else {
		s.other = append(s.other, d)
	}
	e.queued++
	return first || len(s.other) == 1 || e.queued >= e.most()
}

// most is how many may be queued: as many again as may run.
func (e *ends) most() int { return e.w.q.cfg.Concurrency }

// expect says when a shard is claimed next.
func (e *ends) expect(shard int, at time.Duration) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.shards[shard].ride = at
}

// ride returns what goes along with a claim.
func (e *ends) ride(shard int) []ended {
	e.lock.Lock()
	defer e.lock.Unlock()
	s := &e.shards[shard]
	inOrder(s.done)
	n := min(len(s.done), maxBatch)
	along := s.done[:n:n]
	s.done = s.done[n:]
	e.queued -= n
	return along
}

// riders is how many ends ride would return.
func (e *ends) riders(shard int) int {
	e.lock.Lock()
	defer e.lock.Unlock()
	return min(len(e.shards[shard].done), maxBatch)
}

// held is how many runs Redis has not heard of that do not run any more, or will not.
func (e *ends) held() int {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.open
}

// patience is for how long ends wait for a claim that does not come.
const patience = 2 * time.Millisecond

// due is when the ends in a shard have to be sent.
func (e *ends) due(s *endedShard, now time.Duration) time.Duration {
	switch {
	case len(s.done)+len(s.other) == 0:
		return forever
	case e.hurry || e.queued >= e.most():
		return 0
	case len(s.other) == 0 && s.ride < s.since+busyPace+pace && s.ride+patience > now:
		return s.ride + patience
	}
	return max(s.since, e.sent+pace)
}

// ripe returns what has to be sent now, by shard, and when there will be more.
func (e *ends) ripe() (queue []endedShard, next time.Duration) {
	e.lock.Lock()
	defer e.lock.Unlock()
	now := e.w.now()
	next = forever
	for i := range e.shards {
		next = min(next, e.due(&e.shards[i], now))
	}
	if next > now {
		return nil, next
	}
	for i := range e.shards {
		s := &e.shards[i]
		if e.due(s, now) > now {
			continue
		}
		e.queued -= len(s.done) + len(s.other)
		queue = append(queue, endedShard{done: s.done, other: s.other})
		s.done, s.other = nil, nil
	}
	e.sent = now
	return queue, 0
}

// flush sends what does not go along with claims, until ctx ends. What cannot be sent is tried
// again: the work was done, and only Redis can say that the lease is lost.
func (e *ends) flush(ctx context.Context) {
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for fails := 0; ctx.Err() == nil; {
		queue, next := e.ripe()
		if len(queue) == 0 {
			alarm.Reset(next - e.w.now())
			select {
			case <-ctx.Done():
			case <-e.some:
			case <-alarm.C:
			}
			continue
		}
		if again := e.send(ctx, queue); len(again) > 0 {
			e.putBack(again)
			sleep(ctx, pause(fails))
			fails++
		} else {
			fails = 0
		}
	}
}

// putBack queues what could not be sent.
func (e *ends) putBack(again []ended) {
	e.lock.Lock()
	for _, d := range again {
		e.keep(d)
	}
	e.lock.Unlock()
	notify(e.some)
}

// finish waits until Redis knows of all that ended, or for as long as given.
func (e *ends) finish(patience time.Duration) {
	t := time.NewTimer(patience)
	defer t.Stop()
	for e.held() > 0 {
		select {
		case <-e.none:
		case <-t.C:
			return
		}
	}
}

// rush has all that is queued, and what comes, sent at once.
func (e *ends) rush() {
	e.lock.Lock()
	e.hurry = true
	e.lock.Unlock()
	notify(e.some)
}

// send returns what is to be tried again.
func (e *ends) send(ctx context.Context, queue []endedShard) (again []ended) {
	var calls []call
	var groups [][]ended
	for _, s := range queue {
		inOrder(s.done)
		for _, all := range [][]ended{s.done, s.other} {
			for ; len(all) > 0; all = all[min(len(all), maxBatch):] {
				group := all[:min(len(all), maxBatch)]
				calls, groups = append(calls, e.call(group)), append(groups, group)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, e.w.q.cfg.Lease)
	defer cancel()
	values, errs := evalAll(ctx, e.w.client, calls)
	for i, group := range groups {
		if errs[i] != nil {
			e.w.fail(errs[i])
			again = append(again, group...)
			continue
		}
		letters, _ := values[i].(string)
		e.count(group, letters)
	}
	return again
}

// call makes one of ends in one shard, either all done or all not.
func (e *ends) call(group []ended) call {
	shard := group[0].shard
	if group[0].what == "done" {
		return e.w.q.on(shard, scriptAck, appendDone(nil, group)...)
	}
	args := []any{""}
	for _, d := range group {
		var at any = d.at
		if d.at < 0 {
			at = ""
		}
		args = append(args, d.id, d.token, d.what, at, d.delay, toLine(d.reason))
	}
	return e.w.q.on(shard, scriptNack, args...)
}

// appendDone appends arguments as done.lua wants them: what has the same token, as a claim gives it,
// is a group, in the order of the claim; repeating tasks are groups of their own, and come first.
func appendDone(args []any, all []ended) []any {
	for len(all) > 0 && all[0].at != 0 {
		n := 1
		for n < len(all) && all[n].at != 0 && all[n].token == all[0].token {
			n++
		}
		args = append(args, all[0].token, -n)
		for _, d := range all[:n] {
			args = append(args, d.id, d.at)
		}
		all = all[n:]
	}
	runs := make([]*run, len(all))
	for i, d := range all {
		runs[i] = d.run
	}
	return appendBatches(args, runs)
}

// appendBatches appends groups of what has the same token.
func appendBatches(args []any, runs []*run) []any {
	for len(runs) > 0 {
		n := 1
		for n < len(runs) && runs[n].token == runs[0].token {
			n++
		}
		args = append(args, runs[0].token, n)
		for _, r := range runs[:n] {
			args = append(args, r.id)
		}
		runs = runs[n:]
	}
	return args
}

// inOrder sorts ends as appendDone wants them: those of repeating tasks first, the others by batch, and
// as in their batch.
func inOrder(all []ended) {
	slices.SortFunc(all, func(a, b ended) int {
		if (a.at != 0) != (b.at != 0) {
			if a.at != 0 {
				return -1
			}
			return 1
		}
		return a.compare(b.run)
	})
}

// count takes Redis' letters, after which the runs are over.
func (e *ends) count(group []ended, letters string) {
	c := &e.w.q.counts
	for i, d := range group {
		switch letters[i] {
		case 'd':
			c.done.Add(1)
		case 'x':
			c.died.Add(1)
		case 's':
			c.stale.Add(1)
		}
		e.w.flights.remove(d.run)
	}
	e.lock.Lock()
	e.open -= len(group)
	open := e.open
	e.lock.Unlock()
	if open == 0 {
		notify(e.none)
	}
	notify(e.w.freed)
}
