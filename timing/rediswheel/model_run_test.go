package rediswheel

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// A modelRun does both, and compares.
type modelRun struct {
	*model
	t      *testing.T
	q      *Queue
	rand   *rand.Rand
	step   int
	tokens map[string][]int64    // given for a key, so that stale ones are tried
	given  [modelShards][]string // what the last claim gave
}

func (r *modelRun) script(shard int, s *script, args ...any) []string {
	r.t.Helper()
	v, err := eval(context.Background(), r.q.client, r.q.on(shard, s, args...))
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
	key = toLine(key)
	return key, r.q.shard(key)
}

func (r *modelRun) token(key string) int64 {
	given := r.tokens[key]
	switch n := len(given); {
	case n == 0:
		return 1
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
		policy, delay, record := string(policies[r.rand.IntN(3)]), r.rand.Int64N(2000), fmt.Sprint("b", r.step)
		at, told := -delay, int64(-1)
		if r.rand.IntN(3) == 0 {
			told = r.now - 500 + r.rand.Int64N(2000)
			at = told
		}
		r.same("add", r.script(shard, scriptAdd, now, policy, key, record, at), r.add(shard, key, policy, told, delay, record))
	case n < 30:
		r.same("cancel", r.script(shard, scriptCancel, key), r.cancel(key))
	case n < 36:
		delay := r.rand.Int64N(2000)
		r.same("reschedule", r.script(shard, scriptReschedule, now, key, -delay), r.reschedule(key, delay))
	case n < 60:
		r.claims(r.rand.IntN(modelShards), 1+r.rand.IntN(modelMaxClaim))
	case n < 72:
		args, want := r.acks(shard, 1+r.rand.IntN(3))
		r.same("ack", r.script(shard, scriptAck, args...), want)
	case n < 82:
		token, delay, what := r.token(key), r.rand.Int64N(1500), []string{"retry", "retry", "release", "dead", "next"}[r.rand.IntN(5)]
		why := toLine(fmt.Sprint("why ", r.step, "\nreally"))
		r.same("nack "+what, r.script(shard, scriptNack, now, key, token, what, "", delay, why), r.nack(key, token, what, delay, why))
	case n < 88:
		token := r.token(key)
		r.same("extend", r.script(shard, scriptExtend, now, modelLease, token, 1, key), r.extend(key, token))
	case n < 91:
		r.same("requeue", r.script(shard, scriptRequeue, now, key), r.requeue(key))
	case n < 92:
		age := r.rand.Int64N(3000)
		r.same("purge", r.script(shard, scriptPurge, now, age), r.purge(shard, age))
	default:
		r.now += r.rand.Int64N(600)
	}
	r.same("get", []string{strings.Join(r.script(shard, scriptGet, key), " ")}, r.get(key))
}

// acks returns arguments that end up to n tasks of a shard, and what the model says to it.
func (r *modelRun) acks(shard, n int) (args []any, want string) {
	seen := make(map[string]bool)
	var group []ended
	if r.rand.IntN(3) == 0 {
		for i, key := range r.given[shard] { // all of a batch
			group = append(group, ended{&run{id: key, token: fmt.Sprint(r.tokens[key][len(r.tokens[key])-1]), place: i}, end{what: "done"}})
		}
		n = 0
	}
	for range n {
		key, of := r.key()
		for of != shard || seen[key] {
			key, of = r.key()
		}
		seen[key] = true
		token, next := r.token(key), int64(0)
		if r.rand.IntN(4) == 0 {
			next = r.now + 1 + r.rand.Int64N(1000)
		}
		group = append(group, ended{&run{id: key, token: fmt.Sprint(token)}, end{what: "done", at: next}})
	}
	inOrder(group)
	for _, d := range group {
		want += r.ack(d.id, toInt(d.token), d.at)
	}
	return appendDone(nil, group), want
}

// claims claims, and ends tasks with the same script.
func (r *modelRun) claims(shard, most int) {
	worker, mode := fmt.Sprint("w", r.rand.IntN(3)), []string{"take", "help", "renew"}[r.rand.IntN(3)]
	done, letters := r.acks(shard, r.rand.IntN(3))
	args := append([]any{fmt.Sprint(r.now), worker, mode, most, maxBatchBytes, modelLease, modelDeliver, modelOwned, 1000}, done...)
	want := strings.Join(r.claim(shard, worker, mode, most), "|")
	answer, err := eval(context.Background(), r.q.client, r.q.on(shard, scriptClaim, args...))
	must(r.t, err)
	r.same("done", list(answer)[8:9], letters)
	var got []string
	r.given[shard] = nil
	for _, g := range readGiven(answer) {
		r.given[shard] = append(r.given[shard], g.id)
		state := modelTask{cancelled: g.cancelled, attempts: g.attempts, deliveries: g.deliveries,
			occurrence: g.occurrence, reason: toLine(g.reason)}
		got = append(got, fmt.Sprint(g.id, " ", g.token, " ", g.due, " ", state.state(), " ", g.record))
		r.tokens[g.id] = append(r.tokens[g.id], toInt(g.token))
	}
	r.same("claim", got, want)
}

// all compares everything, and that nothing is left over in any of the keys.
func (r *modelRun) all() {
	ctx := context.Background()
	counts := make(map[string]int)
	for _, key := range slices.Sorted(maps.Keys(r.tasks)) {
		t := r.tasks[key]
		r.same("all", []string{strings.Join(r.script(t.shard, scriptGet, key), " ")}, r.get(key))
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
			case "run":
				n += len(r.script(shard, scriptList, "run", 0, 250)) / 4
			case "state", "body":
				n += int(r.q.client.HLen(ctx, key).Val())
			case "due", "dead":
				n += int(r.q.client.ZCard(ctx, key).Val())
			}
		}
		if n != counts[name] {
			r.t.Fatalf("step %d: %d in %s, want %d", r.step, n, name, counts[name])
		}
	}
	r.batches(ctx)
}

// batches compares how many there are: none is left when all of it is over.
func (r *modelRun) batches(ctx context.Context) {
	held := make(map[string]bool)
	for _, t := range r.tasks {
		if t.place == "run" {
			held[fmt.Sprint(t.shard, " ", t.token)] = true
		}
	}
	n := 0
	for shard := range modelShards {
		n += int(r.q.client.HLen(ctx, r.q.keys[shard][1]).Val())
	}
	if n != len(held) {
		r.t.Fatalf("step %d: %d batches, want %d", r.step, n, len(held))
	}
}

// Traces of the backends that ran, which must all be equal.
var (
	tracesLock sync.Mutex
	traces     = make(map[uint64]uint64)
)

func TestModel(t *testing.T) {
	seed, steps := seed.Pick(t, 1), 1000
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		steps = 4000
	}
	if soak() {
		steps = 9000
	}
	backends(t, func(t *testing.T, client redis.UniversalClient) {
		q := open(t, client, Config{Name: "model", Shards: modelShards})
		r := &modelRun{t: t, q: q, rand: rand.New(rand.NewPCG(seed, 0)), tokens: make(map[string][]int64),
			model: &model{now: 1_760_000_000_000, tasks: make(map[string]*modelTask), tokens: make([]int64, modelShards)}}
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
