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

// Config holds the settings of a [Queue]. The zero value is ready to use. All programs that use a
// queue should have the same Name, Shards, Rate, Lease, Refresh and Repeating.
type Config struct {
	// Name begins the names of all keys: queues with different names have nothing in common.
	// Letters, digits and "._:-", at most 64. Empty means "loopwheel".
	Name string

	// Shards is how many parts the queue has, and how many workers can claim tasks at once. The
	// first Open settles it, and fails with another number later. 0 means what is settled, or else
	// 4, or 64 in a cluster. At most 1,024.
	Shards int

	MaxBody     int // bytes of Task.Body at most; 0 means 64 KiB, and 16 MiB is the most
	Concurrency int // tasks that one Run works on at once; 0 means 64

	Places *Places // that several queues share, in place of Concurrency; nil means none
	Weight int     // of the queue among those that share Places; 0 means 1, and 1,000 is the most

	// Rate is how many tasks of the queue start in a second, all workers together. Each shard has
	// an equal part of it. 0 means no such bound.
	Rate float64

	// Lease is how long a task stays with a worker that does not renew it while the handler runs:
	// that has crashed. 0 means 15 seconds; a second is the least.
	Lease time.Duration

	// Timeout bounds an attempt: the handler's context ends then. One that goes on nevertheless
	// keeps its task and its place among Concurrency. 0 means 10 minutes.
	Timeout time.Duration

	MaxAttempts   int // how often a task is tried before it is a dead letter; 0 means 16
	MaxDeliveries int // how many workers may be lost with a task before it is one; 0 means 16

	// Backoff returns how long to wait after a failed attempt, 1 being the first. nil means
	// [DefaultBackoff].
	Backoff func(attempt int) time.Duration

	// Refresh is how often a worker looks at its shards unasked: how late a task may be if a
	// message was lost. A worker that is not heard of for three times as long loses its shards. 0
	// means 2 seconds. From 100 ms to 1 minute.
	Refresh time.Duration

	StopTimeout time.Duration // how long Run waits for handlers when it stops; 0 means 20 seconds

	// MaxDead is how many dead tasks are kept, and DeadAge for how long. Workers look at that every
	// ten refreshes, and delete the oldest. 0 means 10,000, and 90 days.
	MaxDead int
	DeadAge time.Duration

	// Repeating are tasks with Every or Cron that the queue always has. Run adds those that are not
	// there when it begins, cancelled ones too, and when Redis has lost them (ErrLost). One that is
	// there stays as it is: to change it, Add it.
	Repeating []Task

	// OnError gets every attempt that failed, with its task, and with the zero Task of what
	// keeps a worker from working: Redis is away, came back empty (ErrLost), has another time
	// (ErrClock), or does not pass messages on (ErrHints), which Open reports, too. It is called on
	// many goroutines, and should return soon. nil means that errors are only counted.
	OnError func(t Task, err error)

	// Logger gets panics of handlers, with their stacks, and the three errors above. The zero Logger
	// writes to os.Stderr; zerolog.Nop() is silent.
	Logger zerolog.Logger
}

// ownership is how long a worker owns a shard that it does not renew.
func (c *Config) ownership() time.Duration { return 3 * c.Refresh }

var goodName = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// setDefaults fills in what is zero and finds what makes no sense. Shards may stay 0.
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

// setting gives a field its default if it is zero, and finds what makes no sense.
func setting[T cmp.Ordered](name string, field *T, standard, least, most T) error {
	*field = cmp.Or(*field, standard)
	if *field >= least && *field <= most { // which a float that is no number is not
		return nil
	}
	return wrap(ErrConfig, "%s %v: want %v to %v, or 0", name, *field, least, most)
}

// checkRepeating finds what makes no sense in Config.Repeating.
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

// A Queue is a set of delayed tasks on Redis, made by [Open]. Its methods may be called from any
// goroutine. Those with a context wait for Redis, as long as that allows: not for a callback of an
// event loop. A command that was sent before the context ended may
// still be carried out.
type Queue struct {
	cfg     Config
	client  redis.UniversalClient
	keys    [][]string     // of each shard
	shards  map[string]int // by the names of their own hashes
	channel string         // of what workers and scripts tell workers

	lock   sync.Mutex
	counts Stats // what this process has counted
}

// ownKey is the place of the hash that says who owns a shard among its keys.
const ownKey = 4

// shardKeys are the names of a shard's keys, in the order in which scripts have them. The prefix of
// own is that of the channel, too.
func shardKeys(name, prefix, tag string) []string {
	p := name + ":{" + tag + "}:"
	return []string{p + "due", p + "run", p + "state", p + "body", prefix + "{" + tag + "}:own", p + "dead"}
}

// Open looks at the Redis that the client belongs to, and returns a queue on it. The client is the
// caller's, who closes it when no Run is left. It may be one to a single server, to a master that
// Sentinel watches, or to a cluster. A redis.Ring is refused: its shards move.
//
// Errors: ErrConfig, also if Redis may evict our keys, if the client is not of the kind that the
// server needs, or if the queue was opened with another number of shards.
func Open(ctx context.Context, client redis.UniversalClient, cfg Config) (*Queue, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, wrap(ErrConfig, "a redis.Ring does not keep keys where they are; use a cluster, or one server")
	}
	prefix := cfg.Name + ":"
	if c, ok := client.(*redis.Client); ok && c.Options().DB != 0 { // all databases share channels
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
		q.report(wrap(ErrHints, "PUBLISH to %s: %v: tasks that are added may be late by Config.Refresh, and a cancelled one learns that late",
			q.channel, err))
	}
	return q, nil
}

// report tells of what the operator has to know.
func (q *Queue) report(err error) {
	q.cfg.Logger.Error().Err(err).Str("queue", q.cfg.Name).Msg("redis does not do what the queue needs")
	q.cfg.OnError(Task{}, err)
}

// Name returns Config.Name.
func (q *Queue) Name() string { return q.cfg.Name }

// layout is the version of what the keys hold. The number of shards follows.
const layout = "6 "

// settleShards agrees with all others that use the queue on how many shards there are: as many as
// are wanted, if nobody has said so before. 0 takes what there is, or the default.
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

// checkServer refuses a client that will not do, and a Redis that would delete tasks when its memory
// is full.
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
			return nil // the section is not known, or not for us to see
		}
		return explain("open", err)
	}
	if cluster, ok := q.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return check(ctx, c) })
	}
	return check(ctx, q.client)
}

// shard returns where a key is.
func (q *Queue) shard(key string) int { return onredis.Part(key, len(q.keys)) }
