package timing

import "time"

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

// mustBeMade panics for a zero Keyed or KeyedWheel.
func (k *keys[K, V]) mustBeMade() {
	if k.wheel == nil {
		panic("timing: a Keyed or KeyedWheel that was not made with NewKeyed or NewKeyedWheel")
	}
}

// timer returns the handle of a key's timer, which is the zero Timer if there is none. A key that
// cannot be compared panics, before anything has changed.
func (k *keys[K, V]) timer(key K) Timer {
	k.mustBeMade()
	i, ok := k.nodes[key]
	if !ok {
		return Timer{}
	}
	return Timer{k.wheel.id, i, k.wheel.node(i).gen}
}

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

func (k *keys[K, V]) move(key K, when time.Duration) bool {
	return k.wheel.Extend(k.timer(key), when)
}

func (k *keys[K, V]) remove(key K) (value V, ok bool) {
	t := k.timer(key)
	if !k.wheel.Stop(t) {
		return value, false
	}
	return k.takeOut(t).Value, true
}

func (k *keys[K, V]) get(key K) (value V, ok bool) {
	if t := k.timer(key); t != (Timer{}) {
		return k.entries[t.index].Value, true
	}
	return value, false
}

// takeOut removes and returns the entry of a timer that the wheel has just given up.
func (k *keys[K, V]) takeOut(t Timer) (e Entry[K, V]) {
	e, k.entries[t.index] = k.entries[t.index], e // it keeps nothing alive
	delete(k.nodes, e.Key)
	return e
}

// all returns the entries, in no order, of a wheel that has no other timers.
func (k *keys[K, V]) all() []Entry[K, V] {
	var all []Entry[K, V]
	for at := range k.wheel.slots {
		for i := k.wheel.slots[at].first; i != 0; i = k.wheel.node(i).next {
			all = append(all, k.entries[i])
		}
	}
	return all
}

// clear removes all entries, gives memory back, and returns them in the order of their deadlines.
// The wheel must have no other timers.
func (k *keys[K, V]) clear() []Entry[K, V] {
	k.mustBeMade()
	var all []Entry[K, V]
	for _, p := range k.wheel.inOrder() {
		all = append(all, k.entries[p.timer.index])
	}
	k.wheel.clear()
	k.forget()
	return all
}

// forget gives the memory of all entries back. It leaves k.wheel alone, which is read without the
// lock.
func (k *keys[K, V]) forget() { k.nodes, k.entries = make(map[K]uint32), nil }

// keyedBatch is how many entries an expire function gets at most.
const keyedBatch = 256

// expiring takes entries that are due out of a wheel that has no other timers.
type expiring[K comparable, V any] struct {
	keys[K, V]
	batch []Entry[K, V] // what takeDue returned last
	take  func(Due) bool
}

func (k *expiring[K, V]) init(w *Wheel) {
	k.keys = newKeys[K, V](w)
	k.take = func(d Due) bool {
		k.batch = append(k.batch, k.takeOut(d.Timer))
		return true
	}
}

// takeDue takes up to a batch of what is due, and reports whether there is more. The batch is valid
// until endBatch.
func (k *expiring[K, V]) takeDue(now time.Duration) (batch []Entry[K, V], more bool) {
	k.wheel.Take(now, keyedBatch, k.take)
	next, ok := k.wheel.Next()
	return k.batch, ok && next <= now
}

// endBatch forgets the entries of the last batch, so that they are not kept alive.
func (k *expiring[K, V]) endBatch() {
	clear(k.batch)
	k.batch = k.batch[:0]
}
