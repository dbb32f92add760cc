package timing

import "hash/maphash"

// keyedTable finds items by their keys. It is a hash table with chains whose buckets are split one
// at a time, as items come: Litwin, "Linear Hashing" (VLDB 1980). So no Set waits for the whole
// table to be copied, and the table is a word for each bucket and item, no copy of the keys.
//
// An item has the number of its node in the wheel, which is how it is found when it is due.
type keyedTable[K comparable, V any] struct {
	seed    maphash.Seed
	buckets chunks[uint32] // the first item of each chain
	n       uint32         // buckets in use
	half    uint32         // a power of two: n is more than that, or equal, and at most twice that
	count   uint32         // items
	items   chunks[keyedItem[K, V]]
}

// keyedItem is a key with its value.
type keyedItem[K comparable, V any] struct {
	hash  uint32
	next  uint32 // in its chain; 0 is none
	key   K
	value V
}

func (t *keyedTable[K, V]) init() {
	*t = keyedTable[K, V]{seed: maphash.MakeSeed(), n: 1, half: 1}
	t.buckets.grow()
}

func (t *keyedTable[K, V]) hash(key K) uint32 { return uint32(maphash.Comparable(t.seed, key)) }

// bucket returns the chain of a hash.
func (t *keyedTable[K, V]) bucket(hash uint32) *uint32 {
	b := hash & (2*t.half - 1)
	if b >= t.n {
		b -= t.half // it has not been split yet
	}
	return t.buckets.at(b)
}

// find returns the item of a key, 0 if there is none.
func (t *keyedTable[K, V]) find(hash uint32, key K) (i uint32, it *keyedItem[K, V]) {
	for i = *t.bucket(hash); i != 0; i = it.next {
		it = t.items.at(i)
		if it.hash == hash && it.key == key {
			return i, it
		}
	}
	return 0, nil
}

// insert adds item i. There must be none with its key.
func (t *keyedTable[K, V]) insert(i, hash uint32, key K, value V) {
	for i >= t.items.len() {
		t.items.grow()
	}
	if t.count++; t.count > t.n {
		t.split()
	}
	b := t.bucket(hash)
	*t.items.at(i) = keyedItem[K, V]{hash: hash, next: *b, key: key, value: value}
	*b = i
}

// remove takes item i out and returns what it was.
func (t *keyedTable[K, V]) remove(i uint32) (was Entry[K, V]) {
	it := t.items.at(i)
	link := t.bucket(it.hash)
	for *link != i {
		link = &t.items.at(*link).next
	}
	*link = it.next
	t.count--
	was = Entry[K, V]{it.key, it.value}
	*it = keyedItem[K, V]{} // it keeps nothing alive
	return was
}

// split divides the items of the bucket whose turn it is between that and a new one.
func (t *keyedTable[K, V]) split() {
	if t.n == 2*t.half {
		t.half *= 2
	}
	if t.n == t.buckets.len() {
		t.buckets.grow()
	}
	low, high := t.buckets.at(t.n-t.half), t.buckets.at(t.n)
	t.n++
	i := *low
	for i != 0 {
		it := t.items.at(i)
		if it.hash&t.half == 0 {
			*low, low = i, &it.next
		} else {
			*high, high = i, &it.next
		}
		i = it.next
	}
	*low, *high = 0, 0
}
