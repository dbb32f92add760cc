package rediswheel

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"time"
)

// checkRepeating finds what makes no sense in Config.Repeating.
func (c *Config) checkRepeating() error {
	c.Repeating = slices.Clone(c.Repeating)
	keys := make(map[string]bool)
	for i := range c.Repeating {
		t := &c.Repeating[i]
		switch err := t.check(c.MaxBody); {
		case err != nil:
			return fmt.Errorf("rediswheel: %w: Repeating: %w", ErrConfig, err)
		case !t.repeats():
			return badConfig("Repeating: %q has neither Every nor Cron", t.Key)
		case keys[t.Key]:
			return badConfig("Repeating: there are two with the key %q", t.Key)
		}
		keys[t.Key] = true
	}
	return nil
}

// keep has the tasks of Config.Repeating there: from the beginning, and when Redis has lost some of
// the queue, which it tells. Each owner of a shard finds that out for itself; to add what another
// has added is nothing. What was lost at once is found within a refresh.
func (w *worker) keep(ctx context.Context) {
	w.insist(ctx, w.q.addRepeating)
	for quiet := time.Duration(0); ; quiet = w.now() + w.q.cfg.Refresh {
		select {
		case <-ctx.Done():
			return
		case <-w.losses:
		}
		if w.now() > quiet {
			w.lost()
		}
		if w.insist(ctx, w.q.settleAgain) {
			w.insist(ctx, w.q.addRepeating)
		}
		sleep(ctx, w.q.cfg.Refresh)
	}
}

// noteLoss sees whether Redis knew nothing of a shard that was claimed, though it did before.
func (w *worker) noteLoss(c *claim) {
	if c.fresh && w.loop.shards[c.shard].known {
		notify(w.losses)
	}
}

// lost tells that Redis has lost something.
func (w *worker) lost() {
	err := fmt.Errorf("rediswheel: %w: shards of the queue %q are empty that were not", ErrLost, w.q.cfg.Name)
	if w.q.cfg.OnError == nil {
		log.Print(err)
	}
	w.fail(err)
}

// insist calls f until Redis has done it, and reports whether it has: what is wrong for good is told
// once.
func (w *worker) insist(ctx context.Context, f func(ctx context.Context) error) bool {
	for n := 0; ctx.Err() == nil; n++ {
		err := f(ctx)
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			break
		}
		if w.fail(err); errors.Is(err, ErrConfig) || errors.Is(err, ErrBadTask) {
			break
		}
		sleep(ctx, pause(n))
	}
	return false
}

// settleAgain notes anew how many shards there are, as Redis has lost that, too: who opens the
// queue next could settle for another number.
func (q *Queue) settleAgain(ctx context.Context) error {
	switch n, err := q.agree(ctx, len(q.keys)); {
	case err != nil:
		return err
	case n != len(q.keys):
		return badConfig("the queue %q has %d shards, since Redis has lost the %d that it had: open it anew", q.cfg.Name, n, len(q.keys))
	}
	return nil
}

// addRepeating adds the tasks of Config.Repeating that are not there.
func (q *Queue) addRepeating(ctx context.Context) error {
	var entries []entry
	for _, t := range q.cfg.Repeating {
		e, err := q.again(&t)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	for _, err := range q.addAll(ctx, entries) {
		if err != nil {
			return err
		}
	}
	return nil
}

// again is entry for a task that may have been there before. One that was to begin at a time which
// has passed goes on where it would be.
func (q *Queue) again(t *Task) (entry, error) {
	now := time.Now()
	if t.OnConflict = Ignore; !t.At.IsZero() && t.At.Before(now) {
		next, err := t.next(t.At, now)
		if err != nil {
			return entry{}, err
		}
		t.At = next
	}
	return q.entry(t)
}
