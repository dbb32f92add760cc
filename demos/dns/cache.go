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
	loop     *loop.Loop
	entries  map[string]*entry
	max      int // entries
	maxBytes int // of all entries together
	bytes    int
	stale    time.Duration  // for how long an entry is kept beyond its TTL
	failing  map[string]int // codes of failures
}

// An entry is an answer and when it came.
type entry struct {
	answer
	since time.Time
	timer loop.Timer
}

// fresh returns what may be given without asking, and how old it is, or nil: an answer to the
// question, or that there is no such name, which answers for each type (RFC 2308, section 5). key
// is as it was when fresh returns.
func (c *cache) fresh(key []byte) (*entry, time.Duration) {
	now := c.loop.Now()
	if e := c.entries[string(key)]; e != nil && now.Sub(e.since) < e.ttl {
		return e, now.Sub(e.since)
	}
	kind := typeOf(key)
	was := [2]byte(kind)
	clear(kind)
	e := c.entries[string(key)]
	copy(kind, was[:])
	if e != nil && now.Sub(e.since) < e.ttl {
		return e, now.Sub(e.since)
	}
	return nil, 0
}

// any returns what there is, fresh or stale, or nil.
func (c *cache) any(key string) *entry {
	if e := c.entries[key]; e != nil {
		return e
	}
	return c.entries[anyType(key)]
}

// typeOf is where a key has its type, behind which are a class and bits.
func typeOf(key []byte) []byte { return key[len(key)-5 : len(key)-3] }

// anyType is the key under which it is kept that there is no such name.
func anyType(key string) string {
	b := []byte(key)
	clear(typeOf(b))
	return string(b)
}

// put keeps an answer, if it may be kept. Of a full cache arbitrary entries go.
func (c *cache) put(key string, a answer) {
	if a.ttl == 0 {
		return
	}
	if a.gone {
		c.drop(key) // it must not be given when this is no longer fresh
		key = anyType(key)
	}
	c.drop(key)
	e := &entry{answer: a, since: c.loop.Now()}
	if e.size(key) > c.maxBytes {
		return
	}
	for k := range c.entries {
		if len(c.entries) < c.max && c.bytes+e.size(key) <= c.maxBytes {
			break
		}
		c.drop(k)
	}
	e.timer = c.loop.AfterFunc(a.ttl+c.stale, func() { c.drop(key) })
	c.entries[key] = e
	c.bytes += e.size(key)
}

// drop forgets what there is under a key.
func (c *cache) drop(key string) {
	if e := c.entries[key]; e != nil {
		e.timer.Stop()
		delete(c.entries, key)
		c.bytes -= e.size(key)
	}
}

// entrySize is about what an entry takes besides its bytes: the record, its timer, its place in the
// map.
const entrySize = 400

// size returns what an entry takes.
func (e *entry) size(key string) int {
	return entrySize + cap(e.msg) + 8*cap(e.ttls) + len(key)
}

// failed keeps in mind that there was no answer, but a failure with this code: for failFor, nobody
// upstream is asked again.
func (c *cache) failed(key string, code int) {
	if len(c.failing) >= c.max {
		return
	}
	c.failing[key] = code
	c.loop.AfterFunc(failFor, func() { delete(c.failing, key) })
}

// isFailing reports whether there was no answer a short while ago, and the code of that failure.
func (c *cache) isFailing(key []byte) (code int, failing bool) {
	code, failing = c.failing[string(key)]
	return code, failing
}
