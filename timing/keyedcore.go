package timing

import (
	"hash/maphash"
	"time"
)

// Entry is a key and its value in a [Keyed] or a [KeyedWheel].
type Entry[K comparable, V any] struct {
	Key   K
	Value V
}

// keyedBatch is how many entries an expire function gets at most.
const keyedBatch = 256

// keyedCore is what a Keyed and a KeyedWheel have in common. Its wheel has no callbacks: what is
// due are nodes, which are the items of the table.
type keyedCore[K comparable, V any] struct {
	wheel *Wheel
	seed  maphash.Seed // set once: keys are hashed before the lock is taken
	table keyedTable[K, V]
	batch []Entry[K, V] // what takeDue returned last
}

func (k *keyedCore[K, V]) init(w *Wheel) {
	w.collects = true
	k.wheel, k.seed = w, maphash.MakeSeed()
	k.table.init(&w.slab)
}

// mustBeMade panics for a zero Keyed or KeyedWheel: the table, whose indices are not checked, would
// be read where there is none.
func (k *keyedCore[K, V]) mustBeMade() {
	if k.wheel == nil {
		panic("timing: a Keyed or KeyedWheel that was not made with NewKeyed or NewKeyedWheel")
	}
}

// hash is what the other methods want to have of a key.
func (k *keyedCore[K, V]) hash(key K) uint32 {
	k.mustBeMade()
	return uint32(maphash.Comparable(k.seed, key))
}

// set adds an entry, or replaces the one with its key, if that keeps to the limit.
func (k *keyedCore[K, V]) set(hash uint32, key K, value V, when time.Duration, limit int) bool {
	k.table.reserve()
	i, last, _ := k.table.find(hash, key)
	if i != 0 {
		k.table.items.at(i).value = value
		k.wheel.refile(i, when)
		return true
	}
	if k.wheel.Len() >= limit {
		return false
	}
	k.table.insert(last, k.wheel.addNode(when), hash, key, value)
	return true
}

func (k *keyedCore[K, V]) move(hash uint32, key K, when time.Duration) bool {
	i, _, _ := k.table.find(hash, key)
	if i == 0 {
		return false
	}
	k.wheel.refile(i, when)
	return true
}

func (k *keyedCore[K, V]) remove(hash uint32, key K) (value V, ok bool) {
	i, l, j := k.table.find(hash, key)
	if i == 0 {
		return value, false
	}
	k.wheel.takeOut(k.wheel.node(i).at)
	value = k.table.removeAt(i, hash, l, j).Value
	k.wheel.freeNode(i)
	return value, true
}

func (k *keyedCore[K, V]) get(hash uint32, key K) (value V, ok bool) {
	if i, _, _ := k.table.find(hash, key); i != 0 {
		return k.table.items.at(i).value, true
	}
	return value, false
}

// takeDue takes up to a batch of what is due out of the wheel and the table, and reports whether
// there is more. The batch is valid until the next call.
func (k *keyedCore[K, V]) takeDue(now time.Duration) (batch []Entry[K, V], more bool) {
	k.wheel.Advance(now, keyedBatch)
	k.table.touch(k.wheel.collected)
	for _, i := range k.wheel.collected {
		k.batch = append(k.batch, k.table.remove(i))
		k.wheel.freeNode(i)
	}
	k.wheel.collected = k.wheel.collected[:0]
	next, ok := k.wheel.Next()
	return k.batch, ok && next <= now
}

// endBatch forgets the entries of the last batch, so that they are not kept alive.
func (k *keyedCore[K, V]) endBatch() {
	clear(k.batch)
	k.batch = k.batch[:0]
}

// takeAll removes all entries, gives memory back, and returns them in the order of their deadlines.
func (k *keyedCore[K, V]) takeAll() []Entry[K, V] {
	var all []Entry[K, V]
	for _, p := range k.wheel.inOrder() {
		it := k.table.items.at(p.timer.index)
		all = append(all, Entry[K, V]{it.key, it.value})
	}
	k.wheel.clear()
	k.table.init(&k.wheel.slab)
	return all
}

// addNode adds a node without a callback that is due at when.
func (w *Wheel) addNode(when time.Duration) (i uint32) {
	// In most cases, as At does.
	if s := w.recentFor(when); s.has(when) && w.free > 0 {
		if li := w.slotIn(s, when); li.cursor&offMask != 0 {
			at := li.cursor
			w.free--
			i = *uncheckedIn(w.top, w.free)
			w.node(i).at = at
			li.take(at, when)
			li.last.entry(at&offMask).set(i, when)
			return i
		}
	}
	i = w.alloc()
	w.node(i).at = w.file(i, when)
	return i
}

// freeNode gives back a node that is in no slot, and that nobody has a handle of.
func (w *Wheel) freeNode(i uint32) { w.keep(i, 0) }

// clear removes all nodes, without a look at them. Not while Advance runs. It leaves the ticker
// alone, which is read without the lock.
func (w *Wheel) clear() {
	w.reset()
	w.collected = nil
}
