package store

import "iter"

// pageSize is how many entries a page has.
const pageSize = 1024

// entries is a list in pages. A slice of a million pointers stops the loop for some 20 ms when it
// grows while the garbage collector runs, which has to be told of each pointer that is copied. Here
// nothing moves. The zero entries is empty.
type entries struct {
	pages []*[pageSize]*entry
	n     int
}

func (l *entries) len() int { return l.n }

func (l *entries) at(i int) *entry { return l.pages[i/pageSize][i%pageSize] }

func (l *entries) set(i int, e *entry) {
	l.pages[i/pageSize][i%pageSize] = e
	e.pos = i
}

// add adds e at the end.
func (l *entries) add(e *entry) {
	if l.n == len(l.pages)*pageSize {
		l.pages = append(l.pages, new([pageSize]*entry))
	}
	l.set(l.n, e)
	l.n++
}

// remove puts the last entry into the place of e, as dict does. One empty page is kept.
func (l *entries) remove(e *entry) {
	l.n--
	l.set(e.pos, l.at(l.n))
	l.pages[l.n/pageSize][l.n%pageSize] = nil
	if end := len(l.pages) - 1; l.n+pageSize <= end*pageSize {
		l.pages[end] = nil
		l.pages = l.pages[:end]
	}
}

// all yields the entries, none of which may be removed meanwhile.
func (l *entries) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for i := range l.n {
			if !yield(l.at(i)) {
				return
			}
		}
	}
}

// slice returns a copy of the entries at [from, to).
func (l *entries) slice(from, to int) []*entry {
	s := make([]*entry, 0, to-from)
	for i := from; i < to; i++ {
		s = append(s, l.at(i))
	}
	return s
}
