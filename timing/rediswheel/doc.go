// Package rediswheel runs tasks later, on many machines: a timing wheel that outlives its process,
// on Redis, Valkey or a Redis Cluster. If one machine is enough, and delays need not survive the
// process, use timing.Scheduler.
//
// # Guarantees
//
// At least once: a worker gets a task that Add has confirmed when the task is due. A worker gets it
// again if the previous worker is lost or, after a back-off, if the handler fails, until an attempt
// succeeds or the task becomes a dead letter. A handler whose effect must not happen twice can
// detect duplicates with the key and Task.Occurred.
//
// Never twice at once in one process.
//
// Never early, by the Redis clock, which is the only one used. After Cancel has returned Cancelled,
// the task never starts.
//
// # How it works
//
// A queue is divided into shards, and each operation is one script on one shard, with the time of
// Redis. The due tasks of a shard are a sorted set, and each worker keeps the next due times of its
// shards in a local timing wheel.
package rediswheel
