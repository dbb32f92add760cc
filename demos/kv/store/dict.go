package store

import "math/rand/v2"

// A dict is a map whose entries have places as well, without gaps, in no order that matters: that
// is what it takes to choose one at random, and to walk over it in several steps while it changes.
// The zero dict is empty.
type dict[V any] struct {
	index map[string]int
	list  pages[item[V]]
}

type item[V any] struct {
	key string
	val V
}

func (d *dict[V]) len() int { return d.list.len() }

func (d *dict[V]) get(key []byte) (v V, ok bool) {
	if i, ok := d.index[string(key)]; ok {
		return d.list.at(i).val, true
	}
	return v, false
}

func (d *dict[V]) has(key string) bool {
	_, ok := d.index[key]
	return ok
}

// set reports whether key is new.
func (d *dict[V]) set(key []byte, v V) bool {
	if i, ok := d.index[string(key)]; ok {
		d.list.at(i).val = v
		return false
	}
	d.add(string(key), v)
	return true
}

func (d *dict[V]) add(key string, v V) {
	if d.index == nil {
		d.index = make(map[string]int)
	}
	d.index[key] = d.list.len()
	d.list.push(item[V]{key, v})
}

// remove puts the last entry into the gap. So a walk from the end to the start misses none that is
// there all the time: what moves has been seen, or is moved to where it will be.
func (d *dict[V]) remove(key string) bool {
	i, ok := d.index[key]
	if !ok {
		return false
	}
	delete(d.index, key)
	if last := d.list.pop(); i != d.list.len() {
		*d.list.at(i) = last
		d.index[last.key] = i
	}
	return true
}

func (d *dict[V]) random() item[V] { return *d.list.at(rand.IntN(d.len())) }

// clone copies the dict. The values are copied as they are.
func (d *dict[V]) clone() dict[V] {
	c := dict[V]{index: make(map[string]int, d.len()), list: d.list.clone()}
	for key, i := range d.index {
		c.index[key] = i
	}
	return c
}

// window returns which places the next step of a walk covers, from places [from, to) in any
// order, and the cursor of the step behind it, 0 at the end. The first cursor is 0. One that nobody
// gave is a place, too, or the beginning if there is none: the walk ends, and misses what lies
// above, as in redis-server it misses something.
func window(cursor uint64, count, n int) (from, to int, next uint64) {
	to = n
	if cursor > 0 && cursor < uint64(n) {
		to = int(cursor)
	}
	from = max(0, to-count)
	return from, to, uint64(from)
}

// small and short are of how many elements a collection is shown at once, however many were asked
// for, and how long these are at most: so does redis-server, which has such a collection in one
// piece, and some clients ask for no second step.
const small, short = 128, 64

// step is window for a dict that may be small. size is that of a value.
func (d *dict[V]) step(cursor uint64, count int, size func(V) int) (from, to int, next uint64) {
	if d.len() > small {
		return window(cursor, count, d.len())
	}
	for i := range d.list.all() {
		if len(i.key) > short || size(i.val) > short {
			return window(cursor, count, d.len())
		}
	}
	return 0, d.len(), 0
}

// sample returns up to n different places below size, at random.
func sample(n, size int) []int {
	if n >= size {
		all := make([]int, size)
		for i := range all {
			all[i] = i
		}
		return all
	}
	if n > size/2 {
		return rand.Perm(size)[:n]
	}
	chosen, places := make(map[int]bool, n), make([]int, 0, n)
	for len(places) < n {
		if i := rand.IntN(size); !chosen[i] {
			chosen[i] = true
			places = append(places, i)
		}
	}
	return places
}
