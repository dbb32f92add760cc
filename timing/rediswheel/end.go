package rediswheel

import (
	"context"
	"slices"
	"sync"
	"time"
)

// An end is how a run ended.
type end struct {
	what   string // done, next, retry, release or dead
	at     int64  // when the task is due next, in ms; not positive: a negative delay. Of done: 0, or the next occurrence
	reason string
}

type ended struct {
	*run
	end
}

// ends tells Redis how runs ended. What ends within a few milliseconds goes into one pipeline.
type ends struct {
	w      *worker
	lock   sync.Mutex
	queued []ended
	open   int           // runs that Redis has not heard of, queued or sent
	hurry  bool          // nothing waits any more
	some   chan struct{} // has a token when queued is to be looked at
	none   chan struct{} // has a token when open has become 0
}

func (e *ends) put(r *run, how end) {
	e.lock.Lock()
	defer e.lock.Unlock()
	e.open++
	e.queued = append(e.queued, ended{r, how})
	if len(e.queued) == 1 || len(e.queued) == e.many() {
		notify(e.some)
	}
}

// many is how many ends do not wait for more: half of what may run.
func (e *ends) many() int { return max(e.w.places.total/2, 1) }

// held is how many runs have ended and Redis has not heard of.
func (e *ends) held() int {
	e.lock.Lock()
	defer e.lock.Unlock()
	return e.open
}

// flush sends what is queued, until ctx ends. What cannot be sent is tried again: the work was
// done, and only Redis can say that the lease is lost.
func (e *ends) flush(ctx context.Context) {
	for fails := 0; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			return
		case <-e.some:
		}
		e.lock.Lock()
		wait := pace
		if e.hurry || len(e.queued) >= e.many() {
			wait = 0
		}
		e.lock.Unlock()
		if wait > 0 {
			t := time.NewTimer(wait)
			select {
			case <-ctx.Done():
			case <-t.C:
			case <-e.some: // so many that they cannot wait
			}
			t.Stop()
		}
		e.lock.Lock()
		queue := e.queued
		e.queued = nil
		e.lock.Unlock()
		again := e.send(ctx, queue)
		if len(again) == 0 {
			fails = 0
			continue
		}
		sleep(ctx, pause(fails))
		fails++
		e.lock.Lock()
		e.queued = append(again, e.queued...)
		e.lock.Unlock()
		notify(e.some)
	}
}

// rush has all that is queued, and what comes, sent at once.
func (e *ends) rush() {
	e.lock.Lock()
	e.hurry = true
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

// send returns what is to be tried again.
func (e *ends) send(ctx context.Context, queue []ended) (again []ended) {
	type lot struct {
		shard int
		done  bool
	}
	lots := make(map[lot][]ended)
	for _, d := range queue {
		l := lot{d.shard, d.what == "done" && d.at == 0}
		lots[l] = append(lots[l], d)
	}
	var calls []call
	var groups [][]ended
	for l, all := range lots {
		for group := range slices.Chunk(all, maxBatch) {
			c := e.nack(l.shard, group)
			if l.done {
				c = e.ack(l.shard, group)
			}
			calls, groups = append(calls, c), append(groups, group)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, e.w.q.cfg.Lease)
	defer cancel()
	values, errs := e.w.q.evalAll(ctx, calls)
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

func (e *ends) ack(shard int, group []ended) call {
	c := e.w.q.on(shard, scriptAck, len(group))
	c.keys = slices.Clip(c.keys)
	for _, d := range group {
		c.args = append(c.args, d.task.Key, d.token)
	}
	for i, d := range group {
		if result := d.kept(); result != nil {
			c.keys = append(c.keys, e.w.q.resultKey(shard, d.task.Key))
			c.args = append(c.args, i+1, max(d.task.KeepResult.Milliseconds(), 1), result)
		}
	}
	return c
}

func (e *ends) nack(shard int, group []ended) call {
	c := e.w.q.on(shard, scriptNack, "")
	for _, d := range group {
		what := d.what
		if what == "done" {
			what = "next"
		}
		c.args = append(c.args, d.task.Key, d.token, what, d.at, d.reason)
	}
	return c
}

// count takes Redis' letters, after which the runs are over. A run keeps its place until then: what
// is lost with this worker is no more than its places.
func (e *ends) count(group []ended, letters string) {
	c := &e.w.q.counts
	for i, d := range group {
		switch letter := letters[i]; {
		case letter == 's':
			c.stale.Add(1)
		case d.what == "done":
			c.done.Add(1)
		case letter == 'x':
			c.died.Add(1)
		}
		e.w.flights.remove(d.run)
	}
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.open -= len(group); e.open == 0 {
		notify(e.none)
	}
	e.w.places.release(len(group))
}
