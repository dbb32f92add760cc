// Package rediswheel runs delayed tasks on many machines. The tasks are stored in Redis, Valkey or
// a Redis Cluster, and so outlive the process that adds them. If one machine is enough and a delay
// need not survive it, use timing.Scheduler.
//
// # Promises
//
// At least once: a task that Add has confirmed is given to a worker when it is due. It is given
// again if that worker is lost, or, after a back-off, if its handler fails. That ends when an
// attempt succeeds or the task is a dead letter. A handler whose effect must not happen twice uses
// the key and Task.Occurred to detect a repetition.
//
// Never twice at once in one process, unless a task is added again with Replace while it runs.
//
// Never early, by Redis' clock, which is the only clock that counts. A task for which Cancel has
// returned Cancelled never starts.
//
// # How it works
//
// A queue is divided into shards. Each operation is one script on one shard, with the time of
// Redis. The due tasks of a shard are a sorted set, and each worker keeps the next due times of its
// shards in a local timing wheel.
package rediswheel
