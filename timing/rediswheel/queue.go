package rediswheel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// Config configures a [Queue]. The zero value is ready to use. All programs that use a queue should
// have the same Name, Shards, Rate, Lease, Refresh and Repeating.
type Config struct {
	// Name is the prefix of all keys: queues with different names share nothing. It may contain
	// letters, digits and "._:-", at most 64 in all. Empty means "loopwheel".
	Name string

	// Shards is the number of shards of the queue, and so the number of workers that can claim
	// tasks at once. The first Open fixes it; a later Open with another number fails. 0 means the
	// fixed number, or for the first Open 4, or 64 in a cluster. At most 1,024.
	Shards int

	MaxBody     int // maximum length of Task.Body in bytes; 0 means 64 KiB; at most 16 MiB
	Concurrency int // maximum number of tasks that one Run works on at once; 0 means 64

	Places *Places // shared by several queues, in place of Concurrency; nil means none
	Weight int     // of the queue among those that share Places; 0 means 1; at most 1,000

	// Rate is the maximum average number of tasks of the queue that start per second, on all
	// workers together. Each shard gets an equal part of it, and may start one task at once, plus
	// its part of 50 ms. 0 means no limit.
	Rate float64

	// Lease is how long a task stays with a worker that no longer renews it, because it has
	// crashed. 0 means 15 seconds; the minimum is one second.
	Lease time.Duration

	// Timeout limits an attempt: the handler's context ends then. A handler that continues
	// regardless keeps its task and its place in Concurrency. 0 means 10 minutes.
	Timeout time.Duration

	MaxAttempts int // attempts before a task is a dead letter; 0 means 16

	// MaxDeliveries is how many workers may be lost with a task in one attempt before it is a dead
	// letter, also if it repeats. 0 means 16.
	MaxDeliveries int

	// Backoff returns how long to wait after a failed attempt; the first attempt is 1. nil means
	// [DefaultBackoff].
	Backoff func(attempt int) time.Duration

	// Refresh is how often a worker checks its shards without a notification, and so how late a
	// task may be if a notification was lost. A worker that is silent for three times as long loses
	// its shards. 0 means 2 seconds. From 100 ms to 1 minute.
	Refresh time.Duration

	StopTimeout time.Duration // how long Run waits for handlers when it stops; 0 means 20 seconds

	// MaxDead is how many dead tasks are kept, and DeadAge for how long. Each shard keeps an equal
	// part of MaxDead. Workers check that every ten refreshes and delete the oldest. 0 means
	// 10,000, and 90 days.
	MaxDead int
	DeadAge time.Duration

	// Repeating are tasks with Every or Cron that the queue always has. Run adds the missing ones,
	// also cancelled ones, when it begins and when Redis has lost them (ErrLost). Existing ones stay
	// as they are: to change one, Add it.
	Repeating []Task

	// OnError gets every failed attempt with its task, but not a task that is dead because of
	// MaxDeliveries: Queue.Dead has it, and Stats.Died counts it, as it does all dead letters. With
	// the zero Task it gets whatever stops a worker from working: Redis is unreachable, has lost its
	// data (ErrLost), has a changed clock (ErrClock), or does not pass notifications on (ErrHints,
	// which Open reports, too). It is called on many goroutines, and should return soon. nil means
	// that errors are only counted.
	OnError func(t Task, err error)

	// Logger gets panics of handlers, with their stacks, and the three errors above. The zero
	// Logger writes to os.Stderr; zerolog.Nop() is silent.
	Logger zerolog.Logger
}

// ownership is how long a worker owns a shard without renewing it.
func (c *Config) ownership() time.Duration { return 3 * c.Refresh }

var goodName = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// setDefaults replaces zero fields by defaults and reports invalid ones. Shards may stay 0.
func (c *Config) setDefaults() error {
	if c.Name = cmp.Or(c.Name, "loopwheel"); !goodName.MatchString(c.Name) {
		return wrap(ErrConfig, "Name %q: want up to 64 letters, digits and ._:-", c.Name)
	}
	if c.Backoff == nil {
		c.Backoff = DefaultBackoff
	}
	if c.OnError == nil {
		c.OnError = func(Task, error) {}
	}
	c.Logger = onredis.Logger(c.Logger)
	return cmp.Or(
		setting("Shards", &c.Shards, 0, 0, 1024),
		setting("MaxBody", &c.MaxBody, 64<<10, 1, 16<<20),
		setting("Concurrency", &c.Concurrency, 64, 1, math.MaxInt32),
		setting("Weight", &c.Weight, 1, 1, 1000),
		setting("Rate", &c.Rate, 0, 0, 1e6),
		setting("Lease", &c.Lease, 15*time.Second, time.Second, century),
		setting("Timeout", &c.Timeout, 10*time.Minute, 1, century),
		setting("MaxAttempts", &c.MaxAttempts, 16, 1, math.MaxInt32),
		setting("MaxDeliveries", &c.MaxDeliveries, 16, 1, math.MaxInt32),
		setting("MaxDead", &c.MaxDead, 10_000, 1, math.MaxInt32),
		setting("DeadAge", &c.DeadAge, 90*24*time.Hour, time.Second, century),
		setting("Refresh", &c.Refresh, 2*time.Second, 100*time.Millisecond, time.Minute),
		setting("StopTimeout", &c.StopTimeout, 20*time.Second, 1, century),
		c.checkRepeating(),
	)
}

// setting sets a field to its default if it is zero, and reports an invalid value.
func setting[T cmp.Ordered](name string, field *T, standard, least, most T) error {
	*field = cmp.Or(*field, standard)
	if *field >= least && *field <= most { // false for NaN
		return nil
	}
	return wrap(ErrConfig, "%s %v: want %v to %v, or 0", name, *field, least, most)
}

// checkRepeating reports invalid tasks in Config.Repeating.
func (c *Config) checkRepeating() error {
	c.Repeating = slices.Clone(c.Repeating)
	keys := make(map[string]bool)
	for i := range c.Repeating {
		t := &c.Repeating[i]
		t.OnConflict = Ignore
		switch err := t.check(c.MaxBody); {
		case err != nil:
			return wrap(ErrConfig, "Repeating: %v", err)
		case !t.repeats():
			return wrap(ErrConfig, "Repeating: %q has neither Every nor Cron", t.Key)
		case keys[t.Key]:
			return wrap(ErrConfig, "Repeating: there are two with the key %q", t.Key)
		}
		keys[t.Key] = true
	}
	return nil
}

// A Queue is a set of delayed tasks on Redis, made by [Open]. Any goroutine may call its methods.
// Those with a context wait for Redis until the context is done: do not call them in a callback of
// an event loop. A command that was sent before the context ended may still be carried out.
type Queue struct {
	cfg     Config
	client  redis.UniversalClient
	keys    [][]string     // of each shard
	shards  map[string]int // by the names of their own hashes
	channel string         // of notifications to workers

	lock   sync.Mutex
	counts Stats // counters of this process
}

// ownKey is the index of the key of the own hash, which holds the owner of the shard.
const ownKey = 4

// shardKeys returns the names of a shard's keys in the order that scripts use. The prefix of own is
// also that of the channel.
func shardKeys(name, prefix, tag string) []string {
	p := name + ":{" + tag + "}:"
	return []string{p + "due", p + "run", p + "state", p + "body", prefix + "{" + tag + "}:own", p + "dead"}
}

// Open checks the Redis of the client and returns a queue on it. The caller owns the client and
// closes it when no Run is left. The client may connect to a single server, to a master monitored
// by Sentinel, or to a cluster. A redis.Ring is refused because its shards move.
//
// The error is the client's, or ErrConfig, also if Redis may evict the queue's keys, if the client
// is of the wrong kind for the server, or if the queue was opened with another number of shards.
func Open(ctx context.Context, client redis.UniversalClient, cfg Config) (*Queue, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, wrap(ErrConfig, "a redis.Ring does not keep keys where they are; use a cluster, or one server")
	}
	prefix := cfg.Name + ":"
	if c, ok := client.(*redis.Client); ok && c.Options().DB != 0 { // channels ignore databases
		prefix += fmt.Sprintf("@%d:", c.Options().DB)
	}
	q := &Queue{cfg: cfg, client: client, channel: prefix + "hints", shards: make(map[string]int)}
	if err := onredis.Await(ctx, func() error { return q.checkServer(ctx) }); err != nil {
		return nil, err
	}
	shards, err := q.settleShards(ctx, cfg.Shards)
	if err != nil {
		return nil, err
	}
	for i := range shards {
		keys := shardKeys(cfg.Name, prefix, onredis.Tag("", i, shards))
		q.keys = append(q.keys, keys)
		q.shards[keys[ownKey]] = i
	}
	if err := onredis.Await(ctx, func() error { return client.Publish(ctx, q.channel, "").Err() }); onredis.Denied(err) {
		q.report(wrap(ErrHints, "PUBLISH to %s: %v: tasks that are added may be late by Config.Refresh, and handlers of cancelled tasks learn of it late",
			q.channel, err))
	}
	return q, nil
}

// report reports an error to the operator.
func (q *Queue) report(err error) {
	q.cfg.Logger.Error().Err(err).Str("queue", q.cfg.Name).Msg("redis does not do what the queue needs")
	q.cfg.OnError(Task{}, err)
}

// Name returns Config.Name.
func (q *Queue) Name() string { return q.cfg.Name }

// layout is the version of the layout of the keys. The number of shards follows it.
const layout = "6 "

// settleShards agrees with all other users of the queue on the number of shards: want, if none is
// stored yet. If want is 0, it uses the stored number, or the default.
func (q *Queue) settleShards(ctx context.Context, want int) (shards int, err error) {
	standard := 4
	if _, cluster := q.client.(*redis.ClusterClient); cluster {
		standard = 64
	}
	key := q.cfg.Name + ":conf"
	there, err := onredis.Answer(ctx, func() (string, error) {
		set := q.client.SetNX(ctx, key, fmt.Sprint(layout, cmp.Or(want, standard)), 0).Err()
		there, err := q.read(ctx, key)
		if err != nil {
			err = cmp.Or(set, err)
		}
		return there, err
	})
	if err != nil {
		return 0, explain("open", err)
	}
	if _, err := fmt.Sscanf(there, layout+"%d", &shards); err != nil || shards < 1 || shards > 1024 {
		return 0, wrap(ErrConfig, "the key %s holds %q, which is not of this version", key, there)
	}
	if want != 0 && want != shards {
		return 0, wrap(ErrConfig, "%d shards are wanted, and the queue %q has %d", want, q.cfg.Name, shards)
	}
	return shards, nil
}

// checkServer refuses an unsuitable client, and a Redis that would evict tasks when its memory is
// full.
func (q *Queue) checkServer(ctx context.Context) error {
	if err := onredis.Check(ctx, q.client, q.cfg.Name+":conf"); err != nil {
		if unfit := onredis.Unfit(""); errors.As(err, &unfit) {
			return wrap(ErrConfig, "%w", err)
		}
		return explain("open", err)
	}
	check := func(ctx context.Context, c redis.Cmdable) error {
		policy, err := onredis.Evicts(ctx, c)
		if strings.HasPrefix(policy, "allkeys-") {
			return wrap(ErrConfig, "redis has maxmemory-policy %s and would throw tasks away: set it to noeviction", policy)
		}
		if refused := redis.Error(nil); errors.As(err, &refused) {
			return nil // the server does not know the section, or does not show it
		}
		return explain("open", err)
	}
	if cluster, ok := q.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return check(ctx, c) })
	}
	return check(ctx, q.client)
}

// shard returns the shard of a key.
func (q *Queue) shard(key string) int { return onredis.Part(key, len(q.keys)) }
