package timing

import (
	"iter"
	"sync"
	"time"
)

// Entry is a key and its value in a [Keyed] or a [KeyedWheel].
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// keys are timers that are found by a key, each with a value: what [Keyed], [KeyedWheel] and
// [Scheduler] have in common. They are timers of a wheel without callbacks, so whoever takes what
// is due out of the wheel calls takeOut. The wheel may have other timers besides.
type keys[K comparable, V any] struct {
	wheel   *Wheel
	nodes   map[K]uint32
	entries []Entry[K, V] // by node
}

func newKeys[K comparable, V any](w *Wheel) keys[K, V] {
	return keys[K, V]{wheel: w, nodes: make(map[K]uint32)}
}

// timer returns the handle of a key's timer, which is the zero Timer if there is none. A key that
// cannot be compared panics, before anything has changed.
func (k *keys[K, V]) timer(key K) Timer {
	i, ok := k.nodes[key]
	if !ok {
		return Timer{}
	}
	return Timer{k.wheel.id, i, k.wheel.node(i).gen}
}

func (k *keys[K, V]) has(key K) bool { return k.timer(key) != Timer{} }

// set adds an entry, or replaces the one that the key has.
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

// setAfter is set for keys of a driver.
func (k *keys[K, V]) setAfter(d *driver, key K, value V, delay time.Duration) error {
	return d.schedule(delay, func(when time.Duration) error {
		if err := d.admit(k.has(key)); err != nil {
			return err
		}
		k.set(key, value, when)
		return nil
	})
}

// moveAfter gives the entry of a key another deadline.
func (k *keys[K, V]) moveAfter(d *driver, key K, delay time.Duration) error {
	return d.schedule(delay, func(when time.Duration) error {
		if d.stopped {
			return ErrStopped
		}
		if !k.wheel.Extend(k.timer(key), when) {
			return ErrUnknownKey
		}
		return nil
	})
}

func (k *keys[K, V]) remove(key K) (value V, ok bool) {
	t := k.timer(key)
	if !k.wheel.Stop(t) {
		return value, false
	}
	return k.takeOut(t).Value, true
}

// takeOut removes and returns the entry of a timer that the wheel has just given up.
func (k *keys[K, V]) takeOut(t Timer) (e Entry[K, V]) {
	e, k.entries[t.index] = k.entries[t.index], e // it keeps nothing alive
	delete(k.nodes, e.Key)
	return e
}

// clear empties the wheel, and gives the memory of all entries back. It leaves k.wheel alone, which
// is read without the lock.
func (k *keys[K, V]) clear() {
	k.wheel.clear()
	k.nodes, k.entries = make(map[K]uint32), nil
}

// keyedBatch is how many entries an expire function gets at most.
const keyedBatch = 256

// core is what a [Keyed] and a [KeyedWheel] have in common: keys with a wheel of their own, and a
// lock, and a function that gets what has expired.
type core[K comparable, V any] struct {
	keys[K, V]
	locker sync.Locker
	expire func(expired []Entry[K, V])
	batch  []Entry[K, V] // what takeDue has taken last
}

func (k *core[K, V]) init(w *Wheel, locker sync.Locker, expire func([]Entry[K, V])) {
	k.keys, k.locker, k.expire = newKeys[K, V](w), locker, expire
	if expire == nil {
		k.expire = func([]Entry[K, V]) {}
	}
}

func (k *core[K, V]) enter() {
	mustBeMade(k.wheel)
	k.locker.Lock()
}

// takeDue takes up to a batch of what is due into k.batch, and reports whether there may be more.
func (k *core[K, V]) takeDue(now time.Duration) (more bool) {
	k.wheel.Take(now, keyedBatch, func(d Due) bool {
		k.batch = append(k.batch, k.takeOut(d.Timer))
		return true
	})
	next, ok := k.wheel.Next()
	return ok && next <= now
}

// endBatch forgets the entries of the last batch, so that they are not kept alive.
func (k *core[K, V]) endBatch() {
	clear(k.batch)
	k.batch = k.batch[:0]
}

// Remove takes out the entry of a key and returns its value. True means that expire will not get
// it; false that there is none: there never was one, it has expired, or was removed.
func (k *core[K, V]) Remove(key K) (value V, ok bool) {
	k.enter()
	defer k.locker.Unlock()
	return k.remove(key)
}

// Get returns the value of a key. It does not move its deadline. An entry whose time has come is
// found until expire gets it.
func (k *core[K, V]) Get(key K) (value V, ok bool) {
	k.enter()
	defer k.locker.Unlock()
	if t := k.timer(key); t != (Timer{}) {
		return k.entries[t.index].Value, true
	}
	return value, false
}

// Len returns the number of entries.
func (k *core[K, V]) Len() int {
	k.enter()
	defer k.locker.Unlock()
	return k.wheel.Len()
}

// All yields the entries that there are when the iteration begins, in no order. Changes meanwhile
// do not show, and the loop's body may call any method.
func (k *core[K, V]) All() iter.Seq2[K, V] {
	mustBeMade(k.wheel)
	return func(yield func(K, V) bool) {
		k.locker.Lock()
		var all []Entry[K, V]
		for i := range k.wheel.pending() {
			all = append(all, k.entries[i])
		}
		k.locker.Unlock()
		for _, e := range all {
			if !yield(e.Key, e.Value) {
				return
			}
		}
	}
}

// Drain takes out all entries, at one moment, and then calls f with each, in the order of their
// deadlines, on the caller's goroutine. f may be nil, and may set entries, which stay. It returns
// how many there were.
func (k *core[K, V]) Drain(f func(key K, value V)) int {
	k.enter()
	all := k.takeAll()
	k.locker.Unlock()
	if f != nil {
		for _, e := range all {
			f(e.Key, e.Value)
		}
	}
	return len(all)
}

// takeAll removes all entries and returns them in the order of their deadlines.
func (k *core[K, V]) takeAll() []Entry[K, V] {
	var all []Entry[K, V]
	for _, p := range k.wheel.inOrder() {
		all = append(all, k.entries[p.timer.index])
	}
	k.clear()
	return all
}
