package rediswheel

import (
	"fmt"
	"slices"
	"strings"
)

// The model is what a queue should be, in a map. Each step of the test is done by the scripts and
// by the model, with the time told, and must give the same answer; and all that is in Redis must be
// what is in the model.
type model struct {
	now    int64
	tasks  map[string]*modelTask
	owners [modelShards]modelOwner
	trace  strings.Builder
}

// modelOwner is who looks after a shard.
type modelOwner struct {
	worker string
	until  int64
}

type modelTask struct {
	shard                int
	place                string // due, run or dead
	score                int64
	claim, token         string
	was                  int64 // when it was due before it was claimed
	attempts, deliveries int64
	cancelled            bool
	occurrence           int64
	reason               string
	record               string
	stated               bool // has a state in the hash of states
}

const (
	modelShards   = 3
	modelLease    = 1000
	modelOwned    = 3000
	modelLook     = 1000
	modelDeliver  = 4
	modelKeys     = 40
	modelMaxClaim = 5
)

func (m *model) add(shard int, key, policy string, at, delay int64, record string) string {
	old := m.tasks[key]
	if old != nil && policy != "replace" && old.place != "dead" && !old.cancelled {
		return map[string]string{"ignore": "ignored", "fail": "conflict"}[policy]
	}
	due := m.now + delay
	if at >= 0 {
		due = max(at, m.now)
	}
	m.tasks[key] = &modelTask{shard: shard, place: "due", score: due, record: record}
	return "added"
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
		t.token, t.stated = "-", true
		switch {
		case t.cancelled:
			delete(m.tasks, key)
		case t.deliveries >= modelDeliver:
			t.place, t.score = "dead", m.now
			t.reason = fmt.Sprintf("given to %d workers, and none of them finished it", t.deliveries)
		default:
			t.place, t.score = "due", min(t.was, m.now)
		}
	}
}

// unclaim is what unclaim.lua should do.
func (m *model) unclaim(shard int, claim string, later bool) string {
	n := 0
	for key, t := range m.tasks {
		if t.shard != shard || t.place != "run" || t.claim != claim {
			continue
		}
		n++
		t.deliveries--
		switch t.claim = ""; {
		case t.cancelled:
			delete(m.tasks, key)
		case later:
			t.token = fmt.Sprint("lost.", t.was)
		default:
			t.token, t.place, t.score = "-", "due", t.was
		}
	}
	return fmt.Sprint(n)
}

func (m *model) claim(shard int, worker string, take bool, token string, most int) (got []string) {
	o := &m.owners[shard]
	if !take && o.worker != worker && o.until > m.now {
		return nil
	}
	if o.worker != worker || o.until < m.now+modelLook*3/2 {
		*o = modelOwner{worker, m.now + modelOwned}
	}
	m.recover(shard)
	keys := m.first(shard, "due")
	for _, key := range keys[:min(len(keys), most)] {
		t := m.tasks[key]
		if t.occurrence == 0 {
			t.occurrence = t.score
		}
		due := t.score
		t.claim, t.was, t.token = token, due, fmt.Sprint(token, ".", due)
		t.place, t.score, t.stated = "run", m.now+modelLease, true
		t.deliveries++
		got = append(got, fmt.Sprint(key, " ", due, " ", t.state(), " ", t.record))
	}
	return got
}

func (m *model) valid(key, token string) bool {
	t := m.tasks[key]
	return t != nil && t.place == "run" && t.token == token
}

func (m *model) ack(key, token string) string {
	if !m.valid(key, token) {
		return "stale"
	}
	delete(m.tasks, key)
	return "done"
}

func (m *model) nack(key string, token string, what string, delay int64, why string) string {
	if !m.valid(key, token) {
		return "stale"
	}
	t := m.tasks[key]
	if t.cancelled {
		delete(m.tasks, key)
		return "cancelled"
	}
	t.token, t.place, t.score, t.stated = "-", "due", m.now+delay, true
	switch what {
	case "next":
		m.tasks[key] = &modelTask{shard: t.shard, place: "due", score: m.now + delay, record: t.record}
	case "retry":
		t.attempts, t.deliveries, t.reason = t.attempts+1, 0, why
	case "release":
		t.deliveries--
	case "dead":
		t.place, t.score, t.attempts, t.reason = "dead", m.now, t.attempts+1, why
		return "dead"
	}
	return "back"
}

func (m *model) extend(key string, token string) string {
	if !m.valid(key, token) {
		return "stale"
	}
	m.tasks[key].score = m.now + modelLease
	if m.tasks[key].cancelled {
		return "cancelled"
	}
	return "extended"
}

func (m *model) requeue(key string) string {
	t := m.tasks[key]
	switch {
	case t == nil || t.place == "due":
		return "missing"
	case t.place == "run":
		return "running"
	}
	m.tasks[key] = &modelTask{shard: t.shard, place: "due", score: m.now, record: t.record}
	return "moved"
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
		return " 0  "
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
