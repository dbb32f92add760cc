package rediswheel

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// An entry is a task that was found good, with what add.lua wants of it.
type entry struct {
	task   *Task
	id     string // the key, as scripts have it
	shard  int
	at     int64
	record []byte
	size   int
}

// entry checks a task.
func (q *Queue) entry(t *Task) (entry, error) {
	if err := t.check(q.cfg.MaxBody); err != nil {
		return entry{}, err
	}
	at, err := t.when(time.Now())
	if err != nil {
		return entry{}, err
	}
	record, err := t.record()
	id := toLine(t.Key)
	return entry{t, id, q.shard(t.Key), at, record, len(id) + len(record)}, err
}

// A chunk is one call of add.lua.
type chunk struct {
	shards  []int
	entries map[int][]int // of each shard, places in what is added
	tasks   int
	size    int
}

// pipelined is how many calls are sent before the answers are read.
const pipelined = 64

// addAll adds entries, and returns what became of each.
func (q *Queue) addAll(ctx context.Context, entries []entry) []error {
	errs := make([]error, len(entries))
	apart := q.apart.Load()
	for chunks := range slices.Chunk(divide(entries, apart), pipelined) {
		calls := make([]call, len(chunks))
		for i, c := range chunks {
			calls[i] = q.addCall(c, entries)
		}
		values, failed := evalAll(ctx, q.client, calls)
		for i, c := range chunks {
			letters, _ := values[i].(string)
			q.settle(c, entries, letters, failed[i], errs)
		}
	}
	if !apart {
		q.addApart(ctx, entries, errs)
	}
	return errs
}

// addApart adds once more what a server has refused because it is of a cluster, though the client is
// not.
func (q *Queue) addApart(ctx context.Context, entries []entry, errs []error) {
	var again []entry
	var places []int
	for i, err := range errs {
		var answer redis.Error
		if errors.As(err, &answer) && redis.HasErrorPrefix(answer, "CROSSSLOT") {
			again, places = append(again, entries[i]), append(places, i)
		}
	}
	if len(again) == 0 {
		return
	}
	q.apart.Store(true)
	for k, err := range q.addAll(ctx, again) {
		errs[places[k]] = err
	}
}

// divide makes calls of entries. In a cluster each is of one shard.
func divide(entries []entry, apart bool) (chunks []*chunk) {
	open := make(map[int]*chunk)
	for i, e := range entries {
		lot := 0
		if apart {
			lot = e.shard
		}
		c := open[lot]
		if c == nil || c.tasks == maxBatch || c.size+e.size > maxBatchBytes {
			c = &chunk{entries: make(map[int][]int)}
			open[lot] = c
			chunks = append(chunks, c)
		}
		if c.entries[e.shard] == nil {
			c.shards = append(c.shards, e.shard)
		}
		c.entries[e.shard] = append(c.entries[e.shard], i)
		c.tasks, c.size = c.tasks+1, c.size+e.size
	}
	return chunks
}

func (q *Queue) addCall(c *chunk, entries []entry) call {
	keys := q.keys[c.shards[0]]
	if len(c.shards) > 1 {
		keys = slices.Clone(keys)
	}
	args := []any{""}
	for k, shard := range c.shards {
		if k > 0 {
			keys = append(keys, q.keys[shard]...)
		}
		args = appendAdds(args, entries, c.entries[shard])
	}
	return call{scriptAdd, keys, args}
}

// appendAdds appends the arguments of some of the entries.
func appendAdds(args []any, entries []entry, some []int) []any {
	letters := make([]byte, len(some))
	for k, i := range some {
		letters[k] = policies[entries[i].task.OnConflict]
	}
	args = append(args, letters)
	for _, i := range some {
		args = append(args, entries[i].id, entries[i].record)
	}
	for _, i := range some {
		args = append(args, entries[i].at)
	}
	return args
}

// settle takes the answer to a call.
func (q *Queue) settle(c *chunk, entries []entry, letters string, err error, errs []error) {
	n := 0
	for _, shard := range c.shards {
		for _, i := range c.entries[shard] {
			if errs[i] = err; err == nil {
				errs[i] = q.added(entries[i].task, letters[n])
			}
			n++
		}
	}
}
