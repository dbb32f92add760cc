package rediswheel

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// A sighting tells who owns another's shard, and until when, in milliseconds by Redis' clock.
type sighting struct {
	shard int
	owner string
	until int64
	err   error
}

// firstShard is the one whose owner watches the others. All other workers watch it.
const firstShard = 0

// everyShard stands for all shards where workers are ranked for who watches the first.
const everyShard = -1

// watchAt plans to look at the shards of others, in place of what was planned before.
func (w *worker) watchAt(at time.Duration) {
	w.loop.wheel.Stop(w.loop.watch)
	w.loop.watch = w.loop.wheel.At(at, w.watch)
}

// watchFrom plans to look when the first of the owners must have given its shard up. The owner of the
// first shard looks at all others. Of the other workers, the one that ranks first looks at that shard, and
// the rest at random, all of them together about as often as that one: whoever goes, there is one who
// looks, and what this costs does not depend on how many they are.
func (w *worker) watchFrom(till time.Duration) {
	w.loop.till, w.loop.lead = till, w.loop.shards[firstShard].mine || w.rank(everyShard) == 0
	at := till + time.Millisecond + jitter(w.q.cfg.Refresh)
	if !w.loop.lead {
		at += jitter(6 * w.q.cfg.Refresh * time.Duration(len(w.loop.members)))
	}
	w.watchAt(at)
}

// watch asks until when the shards of others are owned, unless meanwhile another ranks first: who starts
// knows of none.
func (w *worker) watch() {
	first := w.loop.shards[firstShard].mine
	if w.loop.lead && !first && w.rank(everyShard) > 0 {
		w.watchFrom(w.loop.till)
		return
	}
	var shards []int
	for i := range w.loop.shards {
		if s := &w.loop.shards[i]; !s.mine && !s.busy && !s.ready && (first || i == firstShard) {
			shards = append(shards, i)
		}
	}
	if len(shards) == 0 || w.loop.asking {
		w.watchFrom(w.now() + 3*w.q.cfg.Refresh)
		return
	}
	w.loop.asking = true
	go func() { w.sightings <- w.ask(shards) }()
}

// ask does it in one round trip. It must not touch what belongs to the loop.
func (w *worker) ask(shards []int) []sighting {
	ctx, cancel := context.WithTimeout(context.Background(), w.q.cfg.Lease)
	defer cancel()
	pipe := w.client.Pipeline()
	cmds := make([]*redis.SliceCmd, len(shards))
	for i, shard := range shards {
		cmds[i] = pipe.HMGet(ctx, w.q.keys[shard][ownKey], "worker", "until")
	}
	_, _ = pipe.Exec(ctx) // each command has its error
	found := make([]sighting, len(shards))
	for i, cmd := range cmds {
		found[i] = sighting{shard: shards[i], err: cmd.Err()}
		if f := list(cmd.Val()); len(f) == 2 { // both empty if nobody owns it
			found[i].owner, found[i].until = f[0], toInt(f[1])
		}
	}
	return found
}

// saw claims the shards whose owners have gone.
func (w *worker) saw(found []sighting) {
	w.loop.asking = false
	first := w.now() + 3*w.q.cfg.Refresh
	for _, f := range found {
		s := &w.loop.shards[f.shard]
		s.owner = f.owner
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
