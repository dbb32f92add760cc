package timing

import (
	"encoding/binary"
	"math/bits"
)

// keyedTable finds the items of a keyedCore by their keys. It is a hash table whose buckets are
// split one at a time, as items come: Litwin, "Linear Hashing" (VLDB 1980). So no Set waits for the
// whole table to be copied, as one of a map may.
//
// A bucket is a cache line, with a byte of each item's hash beside its number: an item is only
// looked at when it is most likely the right one, so a key that is not there costs one look into
// memory. It holds no copy of the keys. An item has the number of its node in the wheel, which is
// how it is found when it is due; and the node keeps the hash, as it needs no generation without
// handles.
type keyedTable[K comparable, V any] struct {
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
	lineLen  = 11
	lineLoad = 5 // items per bucket, from which on buckets are split: those that are split last get twice that
)

// line is 64 bytes of a bucket. Items come without gaps.
type line struct {
	index [lineLen]uint32
	next  uint32    // in extra; 0 is none
	tag   [12]uint8 // of their hashes; the last means nothing
	n     uint8     // how many there are
}

// tagged returns the places whose tag may be one, each as a bit that placeOf understands. A place
// behind one that has it may be there without it, and so may those that are not in use. The way to
// find bytes in a word is Mycroft's; see Knuth, The Art of Computer Programming 4A, 7.1.3.
func (l *line) tagged(tag uint8) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	want := uint64(tag) * ones
	a := binary.LittleEndian.Uint64(l.tag[:8]) ^ want
	b := uint64(binary.LittleEndian.Uint32(l.tag[8:])) ^ want
	a = (a - ones) &^ a & tops
	b = (b - ones) &^ b & tops & (1<<24 - 1)
	return a>>7 | b>>6
}

// placeOf returns the place of the lowest bit: k for bit 8*k, and 8+k for bit 8*k+1.
func placeOf(m uint64) int {
	bit := bits.TrailingZeros64(m)
	return bit>>3 | bit&1<<3
}

func (t *keyedTable[K, V]) init(nodes *slab) {
	*t = keyedTable[K, V]{n: 1, half: 1, used: 1, nodes: nodes}
	t.lines.grow()
}

func tagOf(hash uint32) uint8 { return uint8(hash >> 24) }

// bucket returns the first line of a hash's bucket.
func (t *keyedTable[K, V]) bucket(hash uint32) *line {
	b := hash & (2*t.half - 1)
	if b >= t.n {
		b -= t.half // it has not been split yet
	}
	return t.lines.at(b)
}

// find returns the item of a key and where its bucket has it. If there is none, i is 0, and l the
// bucket's last line.
func (t *keyedTable[K, V]) find(hash uint32, key K) (i uint32, l *line, j int) {
	for l = t.bucket(hash); ; l = t.extra.at(l.next) {
		for m := l.tagged(tagOf(hash)); m != 0; m &= m - 1 {
			j = placeOf(m)
			if j < int(l.n) && t.items.at(l.index[j]).key == key {
				return l.index[j], l, j
			}
		}
		if l.next == 0 {
			return 0, l, 0
		}
	}
}

// reserve makes sure that there is a line for one more item. It may move the lines that there are.
func (t *keyedTable[K, V]) reserve() {
	if t.spare == 0 && t.used >= t.extra.len() {
		t.extra.grow()
	}
}

// insert adds item i to the bucket of its hash, whose last line is l. There must be none with its
// key, and a line in reserve.
func (t *keyedTable[K, V]) insert(l *line, i, hash uint32, key K, value V) {
	for i >= t.items.len() {
		t.items.grow()
	}
	*t.items.at(i) = keyedItem[K, V]{key, value}
	t.nodes.node(i).gen = hash
	t.put(l, i, hash)
	if t.count++; t.count > lineLoad*t.n {
		t.split()
	}
}

// put adds an item to a bucket, of which l is a line.
func (t *keyedTable[K, V]) put(l *line, i, hash uint32) {
	for l.n == lineLen {
		if l.next == 0 {
			l.next = t.newLine()
		}
		l = t.extra.at(l.next)
	}
	l.index[l.n], l.tag[l.n] = i, tagOf(hash)
	l.n++
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
	l, j := t.place(hash, i)
	return t.removeAt(i, hash, l, j)
}

// removeAt is remove where the item's place in its bucket is known.
func (t *keyedTable[K, V]) removeAt(i, hash uint32, l *line, j int) (was Entry[K, V]) {
	last := l
	for last.next != 0 {
		last = t.extra.at(last.next)
	}
	last.n--
	l.index[j], l.tag[j] = last.index[last.n], last.tag[last.n]
	if last.n == 0 {
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

// place returns where item i, which has this hash, is in its bucket.
func (t *keyedTable[K, V]) place(hash, i uint32) (*line, int) {
	for l := t.bucket(hash); ; l = t.extra.at(l.next) {
		for m := l.tagged(tagOf(hash)); m != 0; m &= m - 1 {
			if j := placeOf(m); j < int(l.n) && l.index[j] == i {
				return l, j
			}
		}
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
		for _, i := range old.index[:old.n] {
			t.reserve()
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
