package store

import "iter"

// pageSize is how many elements a page has.
const pageSize = 1024

// pages is a list in pages. A slice of a million elements stops the loop for some 20 ms when it
// grows while the garbage collector runs, which has to be told of each pointer that is copied. Here
// nothing moves, except while there is one page, which begins small. The zero pages is empty.
type pages[T any] struct {
	page [][]T
	n    int
}

func (l *pages[T]) len() int { return l.n }

// at returns the i-th element, in its place.
func (l *pages[T]) at(i int) *T { return &l.page[i/pageSize][i%pageSize] }

// push adds v at the end.
func (l *pages[T]) push(v T) {
	at := l.n / pageSize
	if at == len(l.page) {
		room := pageSize
		if at == 0 {
			room = 1
		}
		l.page = append(l.page, make([]T, 0, room))
	}
	p := l.page[at]
	if len(p) == cap(p) {
		p = append(make([]T, 0, min(2*cap(p), pageSize)), p...)
	}
	l.page[at] = append(p, v)
	l.n++
}

// pop removes the last element. An empty page is kept until half of the one before it is empty, so
// that a list at the border of a page does not make and drop one again and again.
func (l *pages[T]) pop() (v T) {
	l.n--
	at := l.n / pageSize
	p := l.page[at]
	last := len(p) - 1
	v, p[last] = p[last], v
	l.page[at] = p[:last]
	if last <= pageSize/2 && len(l.page) > at+1 {
		clear(l.page[at+1:])
		l.page = l.page[:at+1]
	}
	if at == 0 && cap(p) > 64 && last < cap(p)/4 {
		l.page[0] = append(make([]T, 0, cap(p)/2), p[:last]...)
	}
	return v
}

// all yields the elements, none of which may be removed meanwhile.
func (l *pages[T]) all() iter.Seq[T] { return l.part(0, l.n) }

// part yields the elements at [from, to).
func (l *pages[T]) part(from, to int) iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := from; i < to; i++ {
			if !yield(*l.at(i)) {
				return
			}
		}
	}
}

// clone returns a copy. The elements are copied as they are.
func (l *pages[T]) clone() pages[T] {
	c := pages[T]{n: l.n, page: make([][]T, len(l.page))}
	for i, p := range l.page {
		if i > 0 {
			c.page[i] = make([]T, 0, pageSize)
		}
		c.page[i] = append(c.page[i], p...)
	}
	return c
}
