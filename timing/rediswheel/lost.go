package rediswheel

import (
	"context"
	"errors"
	"fmt"
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
			err := fmt.Errorf("rediswheel: %w: shards of the queue %q are empty that were not", ErrLost, w.q.cfg.Name)
			w.q.cfg.Logger.Error().Err(err).Msg("redis has lost tasks")
			w.fail(err)
		}
		if w.insist(ctx, w.q.settleAgain) {
			w.insist(ctx, w.q.addRepeating)
		}
		sleep(ctx, w.q.cfg.Refresh)
	}
}

// insist calls f until Redis has done it, and reports whether it has: what is wrong for good is
// told once.
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
	n, err := q.agree(ctx, len(q.keys))
	if err == nil && n != len(q.keys) {
		err = badConfig("the queue %q has %d shards, since Redis has lost the %d that it had: open it anew", q.cfg.Name, n, len(q.keys))
	}
	return err
}

// addRepeating adds the tasks of Config.Repeating that are not there. One that was to begin at a
// time which has passed goes on where it would be.
func (q *Queue) addRepeating(ctx context.Context) error {
	var entries []entry
	for _, t := range q.cfg.Repeating {
		t.OnConflict = Ignore
		if !t.At.IsZero() {
			now, err := q.now(ctx, q.shard(t.Key))
			if err == nil && t.At.Before(now) {
				t.At, err = t.next(t.At, now)
			}
			if err != nil {
				return err
			}
		}
		e, err := q.entry(ctx, &t)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	return errors.Join(q.addAll(ctx, entries)...)
}
