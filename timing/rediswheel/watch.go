package rediswheel

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// A sighting tells until when another's shard is owned, in milliseconds by Redis' clock.
type sighting struct {
	shard int
	until int64
	err   error
}

// everyShard stands for all shards where workers are ranked for who looks after those of others.
const everyShard = -1

// maxRank bounds how seldom a worker looks.
const maxRank = 8

// watchFrom plans to look at the shards of others: when the first of their owners must have given it
// up, if this worker ranks first for that. Each that ranks lower looks half as often as the one
// before it, so all of them together look at most twice as often as one.
func (w *worker) watchFrom(till time.Duration) {
	at := till + w.turns() + time.Millisecond + jitter(w.q.cfg.Refresh)
	w.loop.wheel.At(at, func() { w.watch(till) })
}

// turns is for how long those who rank higher are left to look.
func (w *worker) turns() time.Duration {
	return 3 * w.q.cfg.Refresh * (1<<min(w.rank(everyShard), maxRank) - 1)
}

// watch asks until when the shards of others are owned, unless meanwhile there are workers who rank
// higher: who starts knows of none.
func (w *worker) watch(till time.Duration) {
	if w.now() < till+w.turns() {
		w.watchFrom(till)
		return
	}
	var shards []int
	for i := range w.loop.shards {
		if s := &w.loop.shards[i]; !s.mine && !s.busy && !s.ready {
			shards = append(shards, i)
		}
	}
	if len(shards) == 0 {
		w.watchFrom(w.now() + 3*w.q.cfg.Refresh)
		return
	}
	go func() { w.sightings <- w.ask(shards) }()
}

// ask does it in one round trip. It must not touch what belongs to the loop.
func (w *worker) ask(shards []int) []sighting {
	ctx, cancel := context.WithTimeout(context.Background(), w.q.cfg.Lease)
	defer cancel()
	pipe := w.client.Pipeline()
	cmds := make([]*redis.StringCmd, len(shards))
	for i, shard := range shards {
		cmds[i] = pipe.HGet(ctx, w.q.keys[shard][ownKey], "until")
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	found := make([]sighting, len(shards))
	for i, cmd := range cmds {
		found[i] = sighting{shard: shards[i], until: toInt(cmd.Val()), err: cmd.Err()}
		if found[i].err == redis.Nil { // nobody owns it
			found[i].err = nil
		}
	}
	return found
}

// saw claims the shards whose owners have gone.
func (w *worker) saw(found []sighting) {
	first := w.now() + 3*w.q.cfg.Refresh
	for _, f := range found {
		s := &w.loop.shards[f.shard]
		if f.err != nil || s.mine || s.busy || s.ready {
			continue
		}
		till := time.Duration(f.until)*time.Millisecond - s.offset
		if !s.known || till <= w.now() {
			w.makeReady(f.shard)
		} else {
			first = min(first, till)
		}
	}
	w.watchFrom(first)
}
