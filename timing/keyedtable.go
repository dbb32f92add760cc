package timing

import "hash/maphash"

// keyedTable finds the items of a keyedCore by their keys. It is a hash table whose buckets are
// split one at a time, as items come: Litwin, "Linear Hashing" (VLDB 1980). So no Set waits for the
// whole table to be copied, as one of a map may.
//
// A bucket is a cache line, with some of each item's hash beside its number: an item is only looked
// at when it is most likely the right one, so a key that is not there costs one look into memory.
// It holds no copy of the keys. An item has the number of its node in the wheel, which is how it is
// found when it is due; and the node keeps the hash, as it needs no generation without handles.
type keyedTable[K comparable, V any] struct {
	seed  maphash.Seed
	lines chunks[line] // bucket b is at lines[b]
	extra chunks[line] // what did not fit
	n     uint32       // buckets
	half  uint32       // a power of two: n is at least that, and at most twice that
	used  uint32       // of extra
	spare uint32       // of extra, linked by next
	count uint32       // items

	touched uint32 // means nothing, but must be something, or touch would be left out

	nodes *slab
	items chunks[keyedItem[K, V]]
}

type keyedItem[K comparable, V any] struct {
	key   K
	value V
}

const (
	lineLen  = 10
	lineLoad = 5 // items per bucket, from which on buckets are split: those that are split last get twice that
)

// line is 64 bytes of a bucket. Items come without gaps.
type line struct {
	index [lineLen]uint32 // 0 is none
	tag   [lineLen]uint16 // of their hashes
	next  uint32          // in extra; 0 is none
}

func (t *keyedTable[K, V]) init(nodes *slab) {
	*t = keyedTable[K, V]{seed: t.seed, n: 1, half: 1, used: 1, nodes: nodes}
	t.lines.grow()
}

func tagOf(hash uint32) uint16 { return uint16(hash >> 16) }

// bucket returns the first line of a hash's bucket.
func (t *keyedTable[K, V]) bucket(hash uint32) *line {
	b := hash & (2*t.half - 1)
	if b >= t.n {
		b -= t.half // it has not been split yet
	}
	return t.lines.at(b)
}

// find returns the item of a key and where its bucket has it; 0 if there is none.
func (t *keyedTable[K, V]) find(hash uint32, key K) (i uint32, l *line, j int) {
	tag := tagOf(hash)
	for l = t.bucket(hash); ; l = t.extra.at(l.next) {
		for j, i := range &l.index {
			if i == 0 {
				return 0, nil, 0
			}
			if l.tag[j] == tag && t.items.at(i).key == key {
				return i, l, j
			}
		}
		if l.next == 0 {
			return 0, nil, 0
		}
	}
}

// insert adds item i. There must be none with its key.
func (t *keyedTable[K, V]) insert(i, hash uint32, key K, value V) {
	for i >= t.items.len() {
		t.items.grow()
	}
	if t.count++; t.count > lineLoad*t.n {
		t.split()
	}
	*t.items.at(i) = keyedItem[K, V]{key, value}
	t.nodes.node(i).gen = hash
	t.put(t.bucket(hash), i, hash)
}

// put adds an item to a bucket.
func (t *keyedTable[K, V]) put(l *line, i, hash uint32) {
	if t.spare == 0 && t.used >= t.extra.len() {
		t.extra.grow() // not below, where l may be one of them
	}
	for l.index[lineLen-1] != 0 {
		if l.next == 0 {
			l.next = t.newLine()
		}
		l = t.extra.at(l.next)
	}
	j := 0
	for l.index[j] != 0 {
		j++
	}
	l.index[j], l.tag[j] = i, tagOf(hash)
}

// newLine returns an empty line of extra.
func (t *keyedTable[K, V]) newLine() (i uint32) {
	if i = t.spare; i != 0 {
		t.spare = t.extra.at(i).next
		*t.extra.at(i) = line{}
		return i
	}
	t.used++
	return t.used - 1
}

// remove takes item i out and returns what it was.
func (t *keyedTable[K, V]) remove(i uint32) (was Entry[K, V]) {
	hash := t.nodes.node(i).gen
	l, j := t.place(t.bucket(hash), i)
	return t.removeAt(i, hash, l, j)
}

// removeAt is remove where the item's place in its bucket is known.
func (t *keyedTable[K, V]) removeAt(i, hash uint32, l *line, j int) (was Entry[K, V]) {
	last := l
	for last.next != 0 {
		last = t.extra.at(last.next)
	}
	k := j // or behind it, where they are the same line
	if last != l {
		k = 0
	}
	for k+1 < lineLen && last.index[k+1] != 0 {
		k++
	}
	l.index[j], l.tag[j] = last.index[k], last.tag[k]
	if last.index[k] = 0; k == 0 {
		if first := t.bucket(hash); last != first {
			t.dropLast(first)
		}
	}
	t.count--
	it := t.items.at(i)
	was = Entry[K, V]{it.key, it.value}
	*it = keyedItem[K, V]{} // it keeps nothing alive
	return was
}

// touch loads what is to be removed: the processor waits for all of it at once, and not for one
// after the other. In one loop it would look ahead less far.
func (t *keyedTable[K, V]) touch(items []uint32) {
	var sum uint32
	for _, i := range items {
		sum += t.nodes.node(i).gen
	}
	for _, i := range items {
		sum += t.bucket(t.nodes.node(i).gen).index[0]
	}
	t.touched = sum
}

// place returns where item i is in a bucket.
func (t *keyedTable[K, V]) place(l *line, i uint32) (*line, int) {
	for {
		for j := range l.index {
			if l.index[j] == i {
				return l, j
			}
		}
		l = t.extra.at(l.next)
	}
}

// dropLast frees the last line of a bucket, which is empty and not the first.
func (t *keyedTable[K, V]) dropLast(before *line) {
	for t.extra.at(before.next).next != 0 {
		before = t.extra.at(before.next)
	}
	t.extra.at(before.next).next = t.spare
	t.spare, before.next = before.next, 0
}

// split divides the items of the bucket that is next between that and a new one.
func (t *keyedTable[K, V]) split() {
	if t.n == 2*t.half {
		t.half *= 2
	}
	if t.n == t.lines.len() {
		t.lines.grow()
	}
	low, high := t.lines.at(t.n-t.half), t.lines.at(t.n)
	t.n++
	old := *low
	*low = line{}
	for {
		for _, i := range old.index {
			if i == 0 {
				break
			}
			hash := t.nodes.node(i).gen
			if hash&t.half == 0 {
				t.put(low, i, hash)
			} else {
				t.put(high, i, hash)
			}
		}
		next := old.next
		if next == 0 {
			return
		}
		old = *t.extra.at(next)
		t.extra.at(next).next = t.spare
		t.spare = next
	}
}
