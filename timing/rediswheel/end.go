package rediswheel

import (
	"context"
	"sync"
	"time"
)

// An end is how a run ended, for ack.lua (done) or nack.lua (all else).
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

// ends tells Redis how runs ended. While it waits for an answer more come together, and go with the
// next pipeline: the busier a worker is, the more of them go into one script.
type ends struct {
	w     *worker
	lock  sync.Mutex
	queue []ended
	open  int           // runs that Redis has not heard of, in queue or sent
	some  chan struct{} // there is something in queue
	none  chan struct{} // open has become 0
}

func (e *ends) init() {
	e.some, e.none = make(chan struct{}, 1), make(chan struct{}, 1)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (e *ends) put(r *run, how end) {
	e.lock.Lock()
	e.queue = append(e.queue, ended{r, how})
	e.open++
	e.lock.Unlock()
	notify(e.some)
}

// waiting is how many ends have not been sent.
func (e *ends) waiting() int {
	e.lock.Lock()
	defer e.lock.Unlock()
	return len(e.queue)
}

// flush sends what is put, until ctx ends: what comes within pace together, unless places run
// short. What cannot be sent is tried again: the work was done, and only Redis can say that the
// lease is lost.
func (e *ends) flush(ctx context.Context) {
	var last time.Time
	for fails := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-e.some:
		}
		for e.waiting() < e.w.q.cfg.Concurrency/4 && time.Since(last) < pace && ctx.Err() == nil {
			sleep(ctx, time.Millisecond)
		}
		last = time.Now()
		e.lock.Lock()
		queue := e.queue
		e.queue = nil
		e.lock.Unlock()
		again := e.send(ctx, queue)
		if len(again) == 0 {
			fails = 0
			continue
		}
		e.lock.Lock()
		e.queue = append(again, e.queue...)
		e.lock.Unlock()
		sleep(ctx, pause(fails))
		fails++
		notify(e.some)
	}
}

// finish waits until Redis knows of all that ended, or for as long as given.
func (e *ends) finish(patience time.Duration) {
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		e.lock.Lock()
		open := e.open
		e.lock.Unlock()
		if open == 0 {
			return
		}
		select {
		case <-e.none:
		case <-t.C:
			return
		}
	}
}

// A bundle is what goes with one call.
type bundle struct {
	shard int
	ack   bool
}

// send returns what is to be tried again.
func (e *ends) send(ctx context.Context, queue []ended) (again []ended) {
	groups := make(map[bundle][]ended)
	var calls []call
	var sent [][]ended
	flush := func(b bundle) {
		calls, sent = append(calls, e.call(b, groups[b])), append(sent, groups[b])
		delete(groups, b)
	}
	for _, d := range queue {
		b := bundle{d.shard, d.what == "done"}
		if groups[b] = append(groups[b], d); len(groups[b]) == maxBatch {
			flush(b)
		}
	}
	for b := range groups {
		flush(b)
	}
	ctx, cancel := context.WithTimeout(ctx, e.w.q.cfg.Lease)
	defer cancel()
	values, errs := evalAll(ctx, e.w.client, calls)
	for i, group := range sent {
		if errs[i] != nil {
			e.w.fail(errs[i])
			again = append(again, group...)
			continue
		}
		e.count(group, list(values[i]))
	}
	return again
}

func (e *ends) call(b bundle, group []ended) call {
	args := []any{"", e.w.q.channel, b.shard}
	for _, d := range group {
		var at any = d.at
		switch {
		case b.ack && d.at == 0:
			at = ""
		case d.at < 0:
			at = ""
		}
		args = append(args, d.task.Key, d.token)
		if b.ack {
			args = append(args, at)
		} else {
			args = append(args, d.what, at, d.delay, d.reason)
		}
	}
	if b.ack {
		return e.w.q.on(b.shard, scriptAck, args...)
	}
	return e.w.q.on(b.shard, scriptNack, args...)
}

// count takes Redis' answers, after which the runs are over.
func (e *ends) count(group []ended, results []string) {
	c := &e.w.q.counts
	for i, d := range group {
		switch results[i] {
		case "done":
			c.done.Add(1)
		case "dead":
			c.died.Add(1)
		case "stale":
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
	e.w.release(len(group))
}
