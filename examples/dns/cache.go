package main

import (
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// failFor is how long a failure is passed on, or what is stale is given, without asking again: many
// ask again at once, and those who cannot answer must not be asked more for it (RFC 9520).
const failFor = 5 * time.Second

// A cache is one loop's. The loop's wheel ends its entries.
type cache struct {
	loop    *loop.Loop
	entries map[string]*entry
	max     int
	stale   time.Duration // for how long an entry is kept beyond its TTL
	failing map[string]struct{}
}

// An entry is an answer and when it came.
type entry struct {
	answer
	since time.Time
	timer loop.Timer
}

// fresh reports whether e may be given without asking, and how old it is.
func (e *entry) fresh(now time.Time) (age time.Duration, ok bool) {
	age = now.Sub(e.since)
	return age, age < e.ttl
}

// put keeps an answer, if it may be kept. Of a full cache an arbitrary entry goes.
func (c *cache) put(key string, a answer) {
	if a.ttl == 0 {
		return
	}
	if old := c.entries[key]; old != nil {
		old.timer.Stop()
	} else if len(c.entries) >= c.max {
		for k, e := range c.entries {
			e.timer.Stop()
			delete(c.entries, k)
			break
		}
	}
	e := &entry{answer: a, since: c.loop.Now()}
	e.timer = c.loop.AfterFunc(a.ttl+c.stale, func() { delete(c.entries, key) })
	c.entries[key] = e
}

// failed keeps in mind that there was no answer: for failFor, nobody upstream is asked again.
func (c *cache) failed(key string) {
	if len(c.failing) >= c.max {
		return
	}
	c.failing[key] = struct{}{}
	c.loop.AfterFunc(failFor, func() { delete(c.failing, key) })
}

// isFailing reports whether there was no answer a short while ago.
func (c *cache) isFailing(key []byte) bool {
	_, failing := c.failing[string(key)]
	return failing
}
