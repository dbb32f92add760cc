package wheel

import (
	"iter"
	"sync"
	"time"
)

// Entry is timing.Entry.
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// Keyed is timing.Keyed for the owner of a Wheel: its deadlines are offsets on the owner's clock,
// and the expire function runs in the owner's Advance, one batch in each. It has a wheel of its
// own, and one timer in the owner's, the alarm, for its first deadline: none once it was drained.
// Draining the owner takes the alarm away, so drain the Keyed first. With one entry it takes 14 KB.
//
// The methods lock what NewKeyed was given, except Set, Move, Find and TakeAll, for which it must
// be locked.
type Keyed[K comparable, V any] struct {
	Keys[K, V]
	owner  *Wheel
	mu     sync.Locker // guards the Keyed and its owner
	alarm  Timer
	call   func() // ring, made once
	expire func(expired []Entry[K, V])
	batch  []Entry[K, V] // what expire gets
}

// Batch is how many entries an expire function gets at most.
const Batch = 256

// noLock is the lock of a Keyed that one goroutine uses.
type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// NewKeyed returns an empty Keyed on a Wheel, with its tick and its time. mu guards both; nil means
// that one goroutine owns them. expire may be nil.
func NewKeyed[K comparable, V any](owner *Wheel, mu sync.Locker, expire func(expired []Entry[K, V])) *Keyed[K, V] {
	MustBeMade(owner)
	if mu == nil {
		mu = noLock{}
	}
	c := &Keyed[K, V]{Keys: NewKeys[K, V](New(Config{Tick: time.Duration(owner.tick)})), owner: owner, mu: mu, expire: expire}
	c.wheel.Advance(owner.now, 0)
	c.call = c.ring
	return c
}

// lock panics for the zero Keyed.
func (c *Keyed[K, V]) lock() {
	c.MustBeMade()
	c.mu.Lock()
}

// MustBeMade panics for a nil or zero Keyed.
func (c *Keyed[K, V]) MustBeMade() {
	if c == nil {
		MustBeMade(nil)
	}
	MustBeMade(c.wheel)
}

// Set is timing.Keyed.Set. An entry whose deadline is not after the owner's time expires in the
// next Advance.
func (c *Keyed[K, V]) Set(key K, value V, when time.Duration) {
	c.MustBeMade()
	c.wheel.syncTo(c.owner)
	c.Keys.Set(key, value, when)
	c.arm()
}

// Move is timing.Keyed.Move.
func (c *Keyed[K, V]) Move(key K, when time.Duration) bool {
	c.MustBeMade()
	c.wheel.syncTo(c.owner)
	moved := c.wheel.Extend(c.Timer(key), when)
	c.arm()
	return moved
}

// syncTo sets the wheel's time to that of another, without running what is due.
func (w *Wheel) syncTo(other *Wheel) { w.now = other.now }

// arm makes sure that the alarm is not after the first deadline.
func (c *Keyed[K, V]) arm() {
	when, ok := c.wheel.Next()
	alarm, armed := c.owner.When(c.alarm)
	switch {
	case ok && !armed:
		c.alarm = c.owner.At(when, c.call)
	case ok && when < alarm:
		c.owner.Reset(c.alarm, when)
	}
}

// ring is the alarm's callback: one batch.
func (c *Keyed[K, V]) ring() {
	c.mu.Lock()
	c.wheel.Take(c.owner.now, Batch, func(d Due) bool {
		c.batch = append(c.batch, c.TakeOut(d.Timer))
		return true
	})
	c.mu.Unlock()
	defer func() { // deferred, as expire may panic
		c.mu.Lock()
		defer c.mu.Unlock()
		clear(c.batch) // it keeps nothing alive
		c.batch = c.batch[:0]
		c.Release()
		c.arm()
	}()
	if len(c.batch) > 0 && c.expire != nil {
		c.expire(c.batch)
	}
}

// Remove is timing.Keyed.Remove.
func (c *Keyed[K, V]) Remove(key K) (value V, ok bool) {
	c.lock()
	defer c.mu.Unlock()
	return c.Keys.Remove(key)
}

// Get is timing.Keyed.Get.
func (c *Keyed[K, V]) Get(key K) (value V, ok bool) {
	c.lock()
	defer c.mu.Unlock()
	if e := c.Find(key); e != nil {
		return e.Value, true
	}
	return value, false
}

// When returns the deadline of a key's entry.
func (c *Keyed[K, V]) When(key K) (when time.Duration, ok bool) {
	c.lock()
	defer c.mu.Unlock()
	return c.wheel.When(c.Timer(key))
}

// Len is timing.Keyed.Len.
func (c *Keyed[K, V]) Len() int {
	c.lock()
	defer c.mu.Unlock()
	return c.wheel.Len()
}

// All is timing.Keyed.All.
func (c *Keyed[K, V]) All() iter.Seq2[K, V] {
	c.MustBeMade()
	return func(yield func(K, V) bool) {
		c.mu.Lock()
		var all []Entry[K, V]
		for _, i := range c.nodes {
			all = append(all, c.entries[i])
		}
		c.mu.Unlock()
		for _, e := range all {
			if !yield(e.Key, e.Value) {
				return
			}
		}
	}
}

// Drain is timing.Keyed.Drain.
func (c *Keyed[K, V]) Drain(f func(key K, value V)) int {
	c.lock()
	all := c.TakeAll()
	c.mu.Unlock()
	if f != nil {
		for _, e := range all {
			f(e.Key, e.Value)
		}
	}
	return len(all)
}

// TakeAll removes all entries and returns them in the order of their deadlines.
func (c *Keyed[K, V]) TakeAll() (all []Entry[K, V]) {
	for _, p := range c.wheel.InOrder() {
		all = append(all, c.entries[p.Timer.index])
	}
	c.Clear()
	c.owner.Stop(c.alarm)
	return all
}

// Stats returns the numbers of the Keyed's own wheel, whose timers are its entries.
func (c *Keyed[K, V]) Stats() Stats { return c.wheel.Stats() }

// Keys are timers of a wheel that are found by a key, each with a value. They have no callbacks:
// code that takes a due one out of the wheel calls TakeOut. The wheel may have other timers.
type Keys[K comparable, V any] struct {
	wheel   *Wheel // never changes
	nodes   map[K]uint32
	entries []Entry[K, V] // by node
}

// NewKeys returns no keys.
func NewKeys[K comparable, V any](w *Wheel) Keys[K, V] {
	return Keys[K, V]{wheel: w, nodes: make(map[K]uint32)}
}

// Timer returns the timer of a key, or the zero Timer.
func (k *Keys[K, V]) Timer(key K) Timer { return k.wheel.Handle(int(k.nodes[key])) }

// Find returns the entry of a key, or nil.
func (k *Keys[K, V]) Find(key K) *Entry[K, V] {
	if i := k.nodes[key]; i != 0 {
		return &k.entries[i]
	}
	return nil
}

// Entry returns the entry of a pending timer, which must have a key.
func (k *Keys[K, V]) Entry(t Timer) Entry[K, V] { return k.entries[t.index] }

// Set adds an entry, or replaces the one that the key has. A key that cannot be compared panics
// before anything has changed.
func (k *Keys[K, V]) Set(key K, value V, when time.Duration) {
	t := k.Timer(key)
	if !k.wheel.Reset(t, when) {
		t = k.wheel.add(when, nil)
		if key == key { // a NaN would stay in the map forever, and is never found
			k.nodes[key] = t.index
		}
	}
	for t.Index() >= len(k.entries) {
		k.entries = append(k.entries, Entry[K, V]{})
	}
	k.entries[t.index] = Entry[K, V]{key, value}
}

// Remove removes the entry of a key.
func (k *Keys[K, V]) Remove(key K) (value V, ok bool) {
	t := k.Timer(key)
	if !k.wheel.Stop(t) {
		return value, false
	}
	value = k.TakeOut(t).Value
	k.Release()
	return value, true
}

// Release gives back the memory of all entries once the last one has gone. The wheel's other timers
// must be pending.
func (k *Keys[K, V]) Release() {
	if k.wheel.Release() {
		k.nodes, k.entries = make(map[K]uint32), nil
	}
}

// TakeOut removes and returns the entry of a timer that the wheel has just given up.
func (k *Keys[K, V]) TakeOut(t Timer) (e Entry[K, V]) {
	e, k.entries[t.index] = k.entries[t.index], e // it keeps nothing alive
	delete(k.nodes, e.Key)
	return e
}

// Clear empties the wheel, and gives back the memory of all entries.
func (k *Keys[K, V]) Clear() {
	k.wheel.clear()
	k.nodes, k.entries = make(map[K]uint32), nil
}

// Len returns the number of keys.
func (k *Keys[K, V]) Len() int { return len(k.nodes) }
