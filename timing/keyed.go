package timing

import (
	"iter"
	"time"
)

// Entry is a key and its value in a [Keyed] or a [KeyedWheel].
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// KeyedConfig holds the settings of a [Keyed], which mean what those of a [SchedulerConfig] do.
type KeyedConfig struct {
	Tick       time.Duration // for entries that live minutes a second is cheaper than a millisecond
	MaxPending int
	OnPanic    func(v any, stack []byte)
}

// Keyed is a timing wheel of keys, each with a value and a deadline, and of a function that gets
// what has expired: a cache with a time to live, sessions, calls that wait for answers. Any
// goroutine may call its methods, the expire function included. Make one with [NewKeyed]: the
// methods of the zero Keyed panic. Delays and goroutines are those of a [Scheduler].
//
// Set, Move, Remove and Get take constant time, and do not allocate once the Keyed has grown. One
// that had thousands of entries gives its memory back when the last one goes. An entry takes 32
// bytes besides its key and value, and its place in a Go map. Keys are compared with ==: a NaN can
// be set and expires, but is never found, and a key that cannot be compared panics.
type Keyed[K comparable, V any] struct {
	core[K, V]
	s Scheduler // drives the core, with one worker
}

// NewKeyed returns an empty Keyed. It panics if the config makes no sense.
//
// expire gets what has expired, in the order of the deadlines, and within a tick as it was set, up
// to 256 entries at a time: never early, and late by a tick at most and what calls before it take.
// The entries have been removed, so their keys may be set again. The slice is only valid until
// expire returns. Calls run one at a time, on a goroutine of the Keyed, without a lock. A panic is
// reported to OnPanic, and costs the rest of that batch. expire may be nil: then entries just go.
func NewKeyed[K comparable, V any](cfg KeyedConfig, expire func(expired []Entry[K, V])) *Keyed[K, V] {
	k := &Keyed[K, V]{}
	k.s.init(SchedulerConfig{Tick: cfg.Tick, MaxPending: cfg.MaxPending, OnPanic: cfg.OnPanic})
	k.init(k.s.wheel, k.s.lock, k.s.mu.Unlock, expire)
	return k
}

// Set gives a key a value, which expires d from now. If the key has one, both its value and its
// deadline are replaced. The error is nil, ErrStopped, or a *LimitError.
func (k *Keyed[K, V]) Set(key K, value V, d time.Duration) error {
	return k.s.schedule(d, func(when time.Duration) error {
		err := k.s.admit(k.wheel.Len(), k.find(key) != nil)
		if err == nil {
			k.core.Set(key, value, when)
		}
		return err
	})
}

// Update gives a key the value that f returns, in one step: f gets the key's value, and false if it
// has none. A new entry expires d from now, and one that there was keeps its deadline: so a counter
// counts within a window of time. Update returns the new value, or the error that Set would,
// without a call of f. f runs with the lock held: it must not call methods of k. If f panics,
// nothing has changed.
func (k *Keyed[K, V]) Update(key K, d time.Duration, f func(value V, ok bool) V) (value V, err error) {
	err = k.s.schedule(d, func(when time.Duration) error {
		if e := k.find(key); e != nil {
			e.Value = f(e.Value, true)
			value = e.Value
			return nil
		}
		if err := k.s.admit(k.wheel.Len(), false); err != nil {
			return err
		}
		value = f(value, false)
		k.core.Set(key, value, when)
		return nil
	})
	return value, err
}

// Move has the entry of a key expire d from now, be that earlier or later than before, and reports
// true; false if there is none.
func (k *Keyed[K, V]) Move(key K, d time.Duration) bool {
	return nil == k.s.schedule(d, func(when time.Duration) error {
		if !k.core.Move(key, when) {
			return ErrUnknownKey
		}
		return nil
	})
}

// When returns the deadline of a key's entry, and false if there is none.
func (k *Keyed[K, V]) When(key K) (when time.Time, ok bool) {
	k.lock()
	defer k.leave()
	offset, ok := k.wheel.When(k.timer(key))
	if ok {
		when = k.s.start.Add(offset)
	}
	return when, ok
}

// Stop ends the Keyed, as [Scheduler.Stop] does, and returns the entries in order of deadlines.
func (k *Keyed[K, V]) Stop() []Entry[K, V] {
	k.lock()
	defer k.leave()
	k.s.stop()
	return k.takeAll()
}

// KeyedWheel is a [Keyed] for the owner of a [Wheel], on whose goroutine every method and the
// expire function run: it has no goroutine, no clock and no lock. Make one with [NewKeyedWheel]:
// the methods of the zero KeyedWheel panic. With one entry it takes 14 KB.
//
// It has one timer in the owner's Wheel, for its first deadline, and none once it was drained.
// Drain of that Wheel takes the timer away: drain the KeyedWheel before.
type KeyedWheel[K comparable, V any] struct{ core[K, V] }

// NewKeyedWheel returns an empty KeyedWheel on a Wheel, with its tick and its time.
//
// expire gets what [NewKeyed] says, one batch in each Advance of the owner's. If there is more, the
// owner's Next is not after its time. A panic goes on through the owner's Advance.
func NewKeyedWheel[K comparable, V any](owner *Wheel, expire func(expired []Entry[K, V])) *KeyedWheel[K, V] {
	mustBeMade(owner)
	k := &KeyedWheel[K, V]{}
	k.init(owner, func() {}, func() {}, expire)
	return k
}

// core is what a [Keyed] and a [KeyedWheel] have in common: keys with a wheel of their own, which
// one timer in its owner's wheel drives, the alarm.
type core[K comparable, V any] struct {
	keys[K, V]
	owner  *Wheel
	enter  func() // locks the owner
	leave  func() // unlocks it
	alarm  Timer
	call   func() // ring, made once
	expire func(expired []Entry[K, V])
	batch  []Entry[K, V] // what expire gets
}

// keyedBatch is how many entries an expire function gets at most.
const keyedBatch = 256

func (c *core[K, V]) init(owner *Wheel, enter, leave func(), expire func([]Entry[K, V])) {
	c.keys = keys[K, V]{wheel: New(Config{Tick: time.Duration(owner.tick)}), nodes: make(map[K]uint32)}
	c.wheel.Advance(owner.now, 0)
	c.owner, c.enter, c.leave, c.expire, c.call = owner, enter, leave, expire, c.ring
}

func (c *core[K, V]) lock() {
	mustBeMade(c.wheel)
	c.enter()
}

// Set is that of a [Keyed], but the entry expires at when, an offset on the owner's clock. If that
// is not after the owner's time, it expires in the next Advance.
func (c *core[K, V]) Set(key K, value V, when time.Duration) {
	mustBeMade(c.wheel)
	c.wheel.now = c.owner.now
	c.set(key, value, when)
	c.arm()
}

// Move is that of a [Keyed], with the time at which the entry expires.
func (c *core[K, V]) Move(key K, when time.Duration) bool {
	mustBeMade(c.wheel)
	c.wheel.now = c.owner.now
	moved := c.wheel.Extend(c.timer(key), when)
	c.arm()
	return moved
}

// arm makes sure that the alarm is not after the first deadline.
func (c *core[K, V]) arm() {
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
func (c *core[K, V]) ring() {
	c.enter()
	c.wheel.Take(c.owner.now, keyedBatch, func(d Due) bool {
		c.batch = append(c.batch, c.takeOut(d.Timer))
		return true
	})
	c.leave()
	defer func() { // as expire may panic
		c.enter()
		defer c.leave()
		clear(c.batch) // it keeps nothing alive
		c.batch = c.batch[:0]
		c.giveBack()
		c.arm()
	}()
	if len(c.batch) > 0 && c.expire != nil {
		c.expire(c.batch)
	}
}

// Remove takes out the entry of a key. True means that there was one: expire will not get it.
func (c *core[K, V]) Remove(key K) (value V, ok bool) {
	c.lock()
	defer c.leave()
	return c.remove(key)
}

// Get returns the value of a key. It does not move its deadline. An entry whose time has come is
// found until expire gets it.
func (c *core[K, V]) Get(key K) (value V, ok bool) {
	c.lock()
	defer c.leave()
	if e := c.find(key); e != nil {
		return e.Value, true
	}
	return value, false
}

// Len returns the number of entries.
func (c *core[K, V]) Len() int {
	c.lock()
	defer c.leave()
	return c.wheel.Len()
}

// All yields the entries that there are when the iteration begins, in no order. Changes meanwhile
// do not show, and the loop's body may call any method.
func (c *core[K, V]) All() iter.Seq2[K, V] {
	mustBeMade(c.wheel)
	return func(yield func(K, V) bool) {
		c.enter()
		var all []Entry[K, V]
		for _, i := range c.nodes {
			all = append(all, c.entries[i])
		}
		c.leave()
		for _, e := range all {
			if !yield(e.Key, e.Value) {
				return
			}
		}
	}
}

// Drain takes out all entries, at one moment, and then calls f with each, in the order of their
// deadlines. f may be nil, and may set entries, which stay. It returns how many there were.
func (c *core[K, V]) Drain(f func(key K, value V)) int {
	c.lock()
	all := c.takeAll()
	c.leave()
	if f != nil {
		for _, e := range all {
			f(e.Key, e.Value)
		}
	}
	return len(all)
}

// takeAll removes all entries and returns them in the order of their deadlines.
func (c *core[K, V]) takeAll() (all []Entry[K, V]) {
	for _, p := range c.wheel.inOrder() {
		all = append(all, c.entries[p.timer.index])
	}
	c.clear()
	c.owner.Stop(c.alarm)
	return all
}

// keys are timers of a wheel that are found by a key, each with a value. They have no callbacks, so
// whoever takes what is due out of the wheel calls takeOut. The wheel may have other timers.
type keys[K comparable, V any] struct {
	wheel   *Wheel // which stays the same
	nodes   map[K]uint32
	entries []Entry[K, V] // by node
}

// timer returns the timer of a key, which is the zero Timer if there is none.
func (k *keys[K, V]) timer(key K) Timer { return k.wheel.Handle(int(k.nodes[key])) }

// find returns the entry of a key, or nil.
func (k *keys[K, V]) find(key K) *Entry[K, V] {
	if i := k.nodes[key]; i != 0 {
		return &k.entries[i]
	}
	return nil
}

// set adds an entry, or replaces the one that the key has. A key that cannot be compared panics
// before anything has changed.
func (k *keys[K, V]) set(key K, value V, when time.Duration) {
	t := k.timer(key)
	if !k.wheel.Reset(t, when) {
		t = k.wheel.add(when, nil)
		if key == key { // a NaN would stay in the map for good, and is never found
			k.nodes[key] = t.index
		}
	}
	for t.Index() >= len(k.entries) {
		k.entries = append(k.entries, Entry[K, V]{})
	}
	k.entries[t.index] = Entry[K, V]{key, value}
}

func (k *keys[K, V]) remove(key K) (value V, ok bool) {
	t := k.timer(key)
	if !k.wheel.Stop(t) {
		return value, false
	}
	value = k.takeOut(t).Value
	k.giveBack()
	return value, true
}

// giveBack gives the memory of all entries back once the last one has gone. What the wheel holds
// besides must be pending.
func (k *keys[K, V]) giveBack() {
	if k.wheel.giveBack() {
		k.nodes, k.entries = make(map[K]uint32), nil
	}
}

// takeOut removes and returns the entry of a timer that the wheel has just given up.
func (k *keys[K, V]) takeOut(t Timer) (e Entry[K, V]) {
	e, k.entries[t.index] = k.entries[t.index], e // it keeps nothing alive
	delete(k.nodes, e.Key)
	return e
}

// clear empties the wheel, and gives the memory of all entries back.
func (k *keys[K, V]) clear() {
	k.wheel.clear()
	k.nodes, k.entries = make(map[K]uint32), nil
}
