package rediswheel

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A modelRun does both, and compares.
type modelRun struct {
	*model
	t      *testing.T
	q      *Queue
	rand   *rand.Rand
	step   int
	tokens map[string][]string // given for a key, so that stale ones are tried
}

func (r *modelRun) script(shard int, s string, args ...any) []string {
	r.t.Helper()
	v, err := r.q.eval(context.Background(), r.q.on(shard, s, args...))
	must(r.t, err)
	if items, ok := v.([]any); ok {
		return list(items)
	}
	return []string{fmt.Sprint(v)}
}

func (r *modelRun) same(what string, got []string, want string) {
	r.t.Helper()
	if s := strings.Join(got, "|"); s != want {
		r.t.Fatalf("step %d, %s: Redis says %q, the model %q", r.step, what, s, want)
	}
	fmt.Fprintln(&r.trace, r.step, r.now, what, want)
}

func (r *modelRun) key() (string, int) {
	n := r.rand.IntN(modelKeys)
	key := fmt.Sprintf("{k%d}\x00\n", n)
	if n < 4 {
		key = strings.Repeat("\\", n+1)
	}
	return key, r.q.shard(key)
}

func (r *modelRun) token(key string) string {
	given := r.tokens[key]
	switch n := len(given); {
	case n == 0:
		return "none"
	case r.rand.IntN(4) == 0:
		return given[r.rand.IntN(n)]
	default:
		return given[n-1]
	}
}

func (r *modelRun) one() {
	key, shard := r.key()
	now := fmt.Sprint(r.now)
	switch n := r.rand.IntN(100); {
	case n < 22:
		policy, delay, record := policies[r.rand.IntN(3)], r.rand.Int64N(2000), fmt.Sprint("b", r.step)
		at, told := -delay, int64(-1)
		if r.rand.IntN(3) == 0 {
			told = r.now - 500 + r.rand.Int64N(2000)
			at = told
		}
		r.same("add", r.script(shard, "add", now, policy, key, record, at), r.add(shard, key, policy, told, delay, record))
	case n < 30:
		r.same("cancel", r.script(shard, "cancel", key), r.cancel(key))
	case n < 36:
		delay := r.rand.Int64N(2000)
		r.same("reschedule", r.script(shard, "move", now, key, -delay, 0), r.reschedule(key, delay))
	case n < 60:
		r.claims(r.rand.IntN(modelShards), 1+r.rand.IntN(modelMaxClaim))
	case n < 72:
		args, want := r.acks(shard, 1+r.rand.IntN(3))
		r.same("ack", r.script(shard, "runs", append([]any{now}, args...)...), want)
	case n < 82:
		token, delay, what := r.token(key), r.rand.Int64N(1500), []string{"retry", "retry", "release", "dead", "next"}[r.rand.IntN(5)]
		why := fmt.Sprint("why ", r.step, "\nreally")
		r.same("nack "+what, r.script(shard, "runs", now, key, token, what, -delay, why), r.nack(key, token, what, delay, why))
	case n < 88:
		token := r.token(key)
		r.same("extend", r.script(shard, "runs", now, key, token, "extend", -modelLease, ""), r.extend(key, token))
	case n < 91:
		r.same("requeue", r.script(shard, "move", now, key, 0, 1), r.requeue(key))
	case n < 92:
		claim, _, _ := strings.Cut(r.token(key), ".")
		later := r.rand.IntN(2) == 0
		r.same("unclaim", r.script(shard, "unclaim", now, claim, later), r.unclaim(shard, claim, later))
	case n < 93:
		age := r.rand.Int64N(3000)
		r.same("purge", r.script(shard, "purge", now, age, math.MaxInt32), r.purge(shard, age))
	default:
		r.now += r.rand.Int64N(600)
	}
	r.same("get", []string{strings.Join(r.script(shard, "get", key), " ")}, r.get(key))
}

// acks returns arguments that end up to n tasks of a shard, and what the model says to it.
func (r *modelRun) acks(shard, n int) (args []any, want string) {
	seen := make(map[string]bool)
	for range n {
		key, of := r.key()
		for of != shard || seen[key] {
			key, of = r.key()
		}
		seen[key] = true
		token := r.token(key)
		args, want = append(args, key, token, "done", 0, ""), want+" "+r.ack(key, token)
	}
	return args, want[1:]
}

func (r *modelRun) claims(shard, most int) {
	worker, take, token := fmt.Sprint("w", r.rand.IntN(3)), r.rand.IntN(3) > 0, fmt.Sprint("t", r.step)
	want := strings.Join(r.claim(shard, worker, take, token, most), "|")
	answer, err := r.q.eval(context.Background(), r.q.on(shard, "claim", fmt.Sprint(r.now), worker, take, token, most,
		maxBatchBytes, modelLease, modelDeliver, modelOwned, modelLook, 0))
	must(r.t, err)
	var got []string
	if rows := answer.([]any); len(rows) > 3 {
		ids, dues, states, records := list(rows[6]), list(rows[7]), list(rows[8]), list(rows[9])
		for i, id := range ids {
			got = append(got, fmt.Sprint(id, " ", dues[i], " ", states[i], " ", records[i]))
			run, _, _ := strings.Cut(states[i], " ")
			r.tokens[id] = append(r.tokens[id], run)
		}
	}
	r.same("claim", got, want)
}

// all compares everything, and that nothing is left over in any of the keys.
func (r *modelRun) all() {
	ctx := context.Background()
	counts := make(map[string]int)
	for _, key := range slices.Sorted(maps.Keys(r.tasks)) {
		t := r.tasks[key]
		r.same("all", []string{strings.Join(r.script(t.shard, "get", key), " ")}, r.get(key))
		counts[t.place]++
		counts["body"]++
		if t.stated {
			counts["state"]++
		}
	}
	for i, name := range []string{"due", "run", "state", "body", "own", "dead"} {
		n := 0
		for shard := range modelShards {
			switch key := r.q.keys[shard][i]; name {
			case "state", "body":
				n += int(r.q.client.HLen(ctx, key).Val())
			case "due", "run", "dead":
				n += int(r.q.client.ZCard(ctx, key).Val())
			}
		}
		if n != counts[name] {
			r.t.Fatalf("step %d: %d in %s, want %d", r.step, n, name, counts[name])
		}
	}
}

// Traces of the backends that ran, which must all be equal.
var (
	tracesLock sync.Mutex
	traces     = make(map[uint64]uint64)
)

func TestModel(t *testing.T) {
	seed, steps := testkit.Seed(t, 1), 1000
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		steps = 4000
	}
	if soak() {
		steps = 9000
	}
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		q := open(t, client, Config{Name: "model", Shards: modelShards})
		r := &modelRun{t: t, q: q, rand: rand.New(rand.NewPCG(seed, 0)), tokens: make(map[string][]string),
			model: &model{now: 1_760_000_000_000, tasks: make(map[string]*modelTask)}}
		for r.step = range steps {
			r.one()
			if r.step%500 == 0 {
				r.all()
			}
		}
		r.all()
		h := fnv.New64a()
		h.Write([]byte(r.trace.String()))
		tracesLock.Lock()
		defer tracesLock.Unlock()
		if other, ok := traces[seed]; ok && other != h.Sum64() {
			t.Errorf("seed %d: the trace is not that of another backend", seed)
		}
		traces[seed] = h.Sum64()
		t.Logf("seed %d: %d steps, trace %016x", seed, steps, h.Sum64())
	})
}
