// Package rediswheel runs tasks later, on many machines: a timing wheel that outlives its process,
// on Redis, Valkey or a Redis Cluster. Where one machine is enough, and a delay need not survive
// it, use timing.Scheduler.
//
//	q, err := rediswheel.Open(ctx, client, rediswheel.Config{Name: "orders"})
//	...
//	err = q.Add(ctx, rediswheel.Task{Key: "order:42", Delay: 30 * time.Minute, Body: body})
//	...
//	status, err := q.Cancel(ctx, "order:42") // paid in time
//	...
//	err = q.Run(ctx, rediswheel.HandlerFunc(func(ctx context.Context, t rediswheel.Task) error { ... }))
//
// # Promises
//
// At least once: what Add has confirmed is given to a worker when it is due, again if that worker
// is lost, and again with a back-off if its handler fails, until one attempt succeeds or the task
// is a dead letter. A handler whose effect must not happen twice uses the key and Task.Occurred to
// find out.
//
// Never early, by Redis' clock, which is the only one that counts. A task that Cancel has called
// Cancelled never starts.
//
// # How it works
//
// A queue is cut into shards. Each has six keys with one hash tag: sorted sets of what waits, what
// runs and what is dead, hashes of records and states, and a hash that says who owns the shard.
// Each operation is one script on one shard, with its time from Redis. Two things of it are a
// timing wheel: the due sets in Redis, and the local wheel that each worker feeds from them. The
// worker that owns a shard has the time of its next task on that wheel and claims what is due then,
// with a token and under a lease; without the token nothing can be ended. A message tells the owner
// of what is due before it would look. It looks every Config.Refresh, in case that is lost.
package rediswheel
