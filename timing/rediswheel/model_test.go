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
)

// The model is what a queue should be, in a map. Each step of the test is done by the scripts and
// by the model, with the time told, and must give the same answer; and all that is in Redis must be
// what is in the model.
type model struct {
	now    int64
	tasks  map[string]*modelTask
	tokens []int64 // of each shard
	owners [modelShards]modelOwner
	trace  strings.Builder
}

// modelOwner is who looks after a shard. An owner that renews has been heard of for long enough, if
// not much of the time has passed.
type modelOwner struct {
	worker string
	until  int64
}

func (o *modelOwner) renew(worker string, now int64) {
	if o.worker != worker || o.until <= now+modelOwned*5/6 {
		*o = modelOwner{worker, now + modelOwned}
	}
}

type modelTask struct {
	shard                       int
	place                       string // due, run or dead
	score                       int64
	token, attempts, deliveries int64
	cancelled                   bool
	occurrence                  int64
	reason                      string
	record                      string
	stated                      bool // has a state in Redis
}

const (
	modelShards   = 3
	modelLease    = 1000
	modelOwned    = 3000
	modelDeliver  = 4
	modelKeys     = 40
	modelMaxClaim = 5
)

func (m *model) add(shard int, key, policy string, at, delay int64, record string) string {
	old := m.tasks[key]
	if old != nil && policy != "replace" && old.place != "dead" && !old.cancelled {
		return map[string]string{"ignore": "i", "fail": "c"}[policy]
	}
	due := m.now + delay
	if at >= 0 {
		due = max(at, m.now)
	}
	m.tasks[key] = &modelTask{shard: shard, place: "due", score: due, record: record}
	if old == nil {
		return "a"
	}
	return "r"
}

func (m *model) cancel(key string) string {
	t := m.tasks[key]
	switch {
	case t == nil:
		return "missing"
	case t.place == "run":
		t.cancelled = true
		return "running"
	}
	delete(m.tasks, key)
	return "cancelled"
}

func (m *model) reschedule(key string, delay int64) string {
	t := m.tasks[key]
	switch {
	case t == nil || t.place == "dead":
		return "missing"
	case t.place == "run":
		return "running"
	}
	t.score = m.now + delay
	return "moved"
}

// first returns the keys of a shard in a place with scores up to now, as a zset has them.
func (m *model) first(shard int, place string) (keys []string) {
	for key, t := range m.tasks {
		if t.shard == shard && t.place == place && t.score <= m.now {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		if d := m.tasks[a].score - m.tasks[b].score; d != 0 {
			return int(d)
		}
		return strings.Compare(a, b)
	})
	return keys
}

func (m *model) recover(shard int) {
	for _, key := range m.first(shard, "run") {
		t := m.tasks[key]
		t.token = 0
		switch {
		case t.cancelled:
			delete(m.tasks, key)
		case t.deliveries >= modelDeliver:
			t.place, t.score = "dead", m.now
			t.reason = fmt.Sprintf("given to %d workers, and none of them finished it", t.deliveries)
		default:
			t.place, t.score = "due", m.now
		}
	}
}

func (m *model) claim(shard int, worker, mode string, most int) (got []string) {
	o := &m.owners[shard]
	if mode == "renew" && o.worker != worker && o.until > m.now {
		return nil
	}
	if mode != "help" {
		o.renew(worker, m.now)
	}
	m.recover(shard)
	keys := m.first(shard, "due")
	keys = keys[:min(len(keys), most)]
	if len(keys) > 0 {
		m.tokens[shard] = max(m.tokens[shard], m.now) + 1
	}
	for _, key := range keys {
		t := m.tasks[key]
		if t.occurrence == 0 {
			t.occurrence = t.score
		}
		due := t.score
		t.place, t.score, t.token, t.stated = "run", m.now+modelLease, m.tokens[shard], true
		t.deliveries++
		got = append(got, fmt.Sprint(key, " ", due, " ", t.state(), " ", t.record))
	}
	return got
}

func (m *model) valid(key string, token int64) bool {
	t := m.tasks[key]
	return t != nil && t.place == "run" && t.token == token
}

func (m *model) ack(key string, token, next int64) string {
	if !m.valid(key, token) {
		return "s"
	}
	t := m.tasks[key]
	if next > 0 && !t.cancelled {
		m.tasks[key] = &modelTask{shard: t.shard, place: "due", score: next, record: t.record}
	} else {
		delete(m.tasks, key)
	}
	return "d"
}

func (m *model) nack(key string, token int64, what string, delay int64, why string) string {
	if !m.valid(key, token) {
		return "s"
	}
	t := m.tasks[key]
	if t.cancelled {
		delete(m.tasks, key)
		return "c"
	}
	t.token, t.place, t.score = 0, "due", m.now+delay
	switch what {
	case "next":
		m.tasks[key] = &modelTask{shard: t.shard, place: "due", score: m.now + delay, record: t.record}
	case "retry":
		t.attempts, t.deliveries, t.reason = t.attempts+1, 0, why
	case "release":
		t.deliveries--
	case "dead":
		t.place, t.score, t.attempts, t.reason = "dead", m.now, t.attempts+1, why
		return "x"
	}
	return "b"
}

func (m *model) extend(key string, token int64) string {
	if !m.valid(key, token) {
		return "stale"
	}
	m.tasks[key].score = m.now + modelLease
	return "held"
}

func (m *model) requeue(key string) string {
	t := m.tasks[key]
	if t == nil || t.place != "dead" {
		return "0"
	}
	m.tasks[key] = &modelTask{shard: t.shard, place: "due", score: m.now, record: t.record}
	return "1"
}

func (m *model) purge(shard int, age int64) string {
	n := 0
	for key, t := range m.tasks {
		if t.shard == shard && t.place == "dead" && t.score <= m.now-age {
			delete(m.tasks, key)
			n++
		}
	}
	return fmt.Sprint(n)
}

// get is what get.lua should say.
func (m *model) get(key string) string {
	t := m.tasks[key]
	if t == nil {
		return "   "
	}
	state := ""
	if t.stated {
		state = t.state()
	}
	return strings.Join([]string{t.place, fmt.Sprint(t.score), state, t.record}, " ")
}

// state is what Redis has of a task that was started.
func (t *modelTask) state() string {
	cancelled := 0
	if t.cancelled {
		cancelled = 1
	}
	return fmt.Sprint(t.token, " ", cancelled, " ", t.attempts, " ", t.deliveries, " ", t.occurrence, " ", t.reason)
}

// A modelRun does both, and compares.
type modelRun struct {
	*model
	t      *testing.T
	q      *Queue
	rand   *rand.Rand
	step   int
	tokens map[string][]int64 // given for a key, so that stale ones are tried
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
	key := fmt.Sprintf("{k%d}\x00", r.rand.IntN(modelKeys))
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
	now, channel := fmt.Sprint(r.now), r.q.hints[shard]
	switch n := r.rand.IntN(100); {
	case n < 22:
		policy, delay, record := policies[r.rand.IntN(3)], r.rand.Int64N(2000), fmt.Sprint("b", r.step)
		at, told := -delay, int64(-1)
		if r.rand.IntN(3) == 0 {
			told = r.now - 500 + r.rand.Int64N(2000)
			at = told
		}
		r.same("add", r.script(shard, scriptAdd, now, channel, key, policy, at, record), r.add(shard, key, policy, told, delay, record))
	case n < 30:
		r.same("cancel", r.script(shard, scriptCancel, key), r.cancel(key))
	case n < 36:
		delay := r.rand.Int64N(2000)
		r.same("reschedule", r.script(shard, scriptReschedule, now, channel, key, -delay), r.reschedule(key, delay))
	case n < 60:
		r.claims(r.rand.IntN(modelShards), 1+r.rand.IntN(modelMaxClaim))
	case n < 72:
		args, want := r.acks(shard, 1+r.rand.IntN(3))
		r.same("ack", r.script(shard, scriptAck, append([]any{now, channel}, args...)...), want)
	case n < 82:
		token, delay, what := r.token(key), r.rand.Int64N(1500), []string{"retry", "retry", "release", "dead", "next"}[r.rand.IntN(5)]
		why := fmt.Sprint("why ", r.step, "\nreally")
		r.same("nack "+what, r.script(shard, scriptNack, now, channel, key, token, what, "", delay, why), r.nack(key, token, what, delay, why))
	case n < 88:
		token := r.token(key)
		r.same("extend", r.script(shard, scriptExtend, now, modelLease, key, token), r.extend(key, token))
	case n < 91:
		r.same("requeue", r.script(shard, scriptRequeue, now, channel, key), r.requeue(key))
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
	for range n {
		key, of := r.key()
		for of != shard || seen[key] {
			key, of = r.key()
		}
		seen[key] = true
		token, next := r.token(key), int64(0)
		var arg any = ""
		if r.rand.IntN(4) == 0 {
			next = r.now + 1 + r.rand.Int64N(1000)
			arg = next
		}
		args, want = append(args, key, token, arg), want+r.ack(key, token, next)
	}
	return args, want
}

// claims claims, and ends tasks with the same script.
func (r *modelRun) claims(shard, most int) {
	worker, mode := fmt.Sprint("w", r.rand.IntN(3)), []string{"take", "help", "renew"}[r.rand.IntN(3)]
	done, letters := r.acks(shard, r.rand.IntN(3))
	args := append([]any{fmt.Sprint(r.now), worker, mode, most, maxBatchBytes, modelLease, modelDeliver, modelOwned, 1000, r.q.hints[shard]}, done...)
	want := strings.Join(r.claim(shard, worker, mode, most), "|")
	f := r.script(shard, scriptClaim, args...)
	r.same("done", f[8:9], letters)
	var got []string
	for f = f[9:]; len(f) >= 4; f = f[4:] {
		got = append(got, strings.Join(f[:4], " "))
		r.tokens[f[0]] = append(r.tokens[f[0]], parseState(f[2]).token)
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
			if name == "state" || name == "body" {
				n += int(r.q.client.HLen(ctx, r.q.keys[shard][i]).Val())
			} else if name != "own" {
				n += int(r.q.client.ZCard(ctx, r.q.keys[shard][i]).Val())
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
	seed, steps := uint64(1), 1000
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		seed, steps = rand.Uint64(), 4000
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
