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
	tokens []int64 // the last, of each shard
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
	stated                      bool // has a state in the hash of states
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
	if old != nil && policy != "a" && old.place != "dead" && !old.cancelled {
		return policy
	}
	due := m.now + delay
	if at >= 0 {
		due = max(at, m.now)
	}
	m.tasks[key] = &modelTask{shard: shard, place: "due", score: due, record: record}
	return "a"
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
		t.token, t.stated = 0, true
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
		m.tokens[shard] = max(m.tokens[shard]+1, m.now*1000)
	}
	for _, key := range keys {
		t := m.tasks[key]
		if t.occurrence == 0 {
			t.occurrence = t.score
		}
		due := t.score
		t.place, t.score, t.token, t.stated = "run", m.now+modelLease, m.tokens[shard], false
		t.deliveries++
		got = append(got, fmt.Sprint(key, " ", t.token, " ", due, " ", t.state(), " ", t.record))
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
	t.token, t.place, t.score, t.stated = 0, "due", m.now+delay, true
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
		return "s"
	}
	for _, t := range m.tasks { // those that were claimed together have one lease
		if t.place == "run" && t.shard == m.tasks[key].shard && t.token == token {
			t.score = m.now + modelLease
		}
	}
	return "h"
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
		return "    "
	}
	state, token := "", ""
	if t.stated || t.place == "run" {
		state = t.state()
	}
	if t.place == "run" {
		token = fmt.Sprint(t.token)
	}
	return strings.Join([]string{t.place, fmt.Sprint(t.score), state, t.record, token}, " ")
}

// state is what Redis has of a task that was started.
func (t *modelTask) state() string {
	cancelled := 0
	if t.cancelled {
		cancelled = 1
	}
	return fmt.Sprint(cancelled, " ", t.attempts, " ", t.deliveries, " ", t.occurrence, " ", t.reason)
}
