// Package rediswheel runs tasks later, on many machines: a timing wheel that outlives its process,
// on Redis, Valkey or a Redis Cluster. Where one machine is enough, and a delay need not survive
// it, use timing.Scheduler.
//
// # Promises
//
// At least once: what Add has confirmed is given to a worker when it is due. It is given again if
// that worker is lost, or, after a back-off, if its handler fails. That ends when an attempt
// succeeds or the task is a dead letter. A handler whose effect must not happen twice uses the key
// and Task.Occurred to find out.
//
// Never twice at once in one process.
//
// Never early, by Redis' clock, which is the only one that counts. A task that Cancel has called
// Cancelled never starts.
//
// # How it works
//
// A queue is cut into shards, and each operation is one script on one shard, with its time from
// Redis. Each shard's due tasks are a sorted set, and each worker keeps the next due times of its
// shards in a local timing wheel.
package rediswheel
