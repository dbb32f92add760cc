package store

import (
	"slices"

	"github.com/gammazero/deque"
)

// A list is a double-ended queue in pages, each of which is one, too: as redis-server's quicklist.
// A queue of a million that grows as one piece stops the loop for longer than 2 ms. All pages but
// the first and the last are full. The zero list is empty.
//
//	first          full           full           last
//	[ . . a b c ]  [ d e f g h ]  [ i j k l m ]  [ n o . . . ]
type list struct {
	pages []*deque.Deque[string]
	n     int
}

// Len returns how many elements there are.
func (l *list) Len() int { return l.n }

// find returns the page of the i-th element, and its place there.
func (l *list) find(i int) (page, at int) {
	if first := l.pages[0].Len(); i >= first {
		i -= first
		return 1 + i/pageSize, i % pageSize
	}
	return 0, i
}

// At returns the i-th element.
func (l *list) At(i int) string {
	page, at := l.find(i)
	return l.pages[page].At(at)
}

// Set changes the i-th element.
func (l *list) Set(i int, v string) {
	page, at := l.find(i)
	l.pages[page].Set(at, v)
}

// PushBack adds v behind the last element.
func (l *list) PushBack(v string) {
	if end := len(l.pages) - 1; end < 0 || l.pages[end].Len() == pageSize {
		l.pages = append(l.pages, new(deque.Deque[string]))
	}
	l.pages[len(l.pages)-1].PushBack(v)
	l.n++
}

// PushFront adds v before the first element.
func (l *list) PushFront(v string) {
	if len(l.pages) == 0 || l.pages[0].Len() == pageSize {
		l.pages = slices.Insert(l.pages, 0, new(deque.Deque[string]))
	}
	l.pages[0].PushFront(v)
	l.n++
}

// PopFront removes the first element, which must be there.
func (l *list) PopFront() string {
	v := l.pages[0].PopFront()
	if l.n--; l.pages[0].Len() == 0 {
		l.pages[0] = nil
		l.pages = l.pages[1:]
	}
	return v
}

// PopBack removes the last element, which must be there.
func (l *list) PopBack() string {
	end := len(l.pages) - 1
	v := l.pages[end].PopBack()
	if l.n--; l.pages[end].Len() == 0 {
		l.pages[end] = nil
		l.pages = l.pages[:end]
	}
	return v
}

// Insert puts v before the i-th element. What a full page has too much goes on to the next.
func (l *list) Insert(i int, v string) {
	switch i {
	case 0:
		l.PushFront(v)
		return
	case l.n:
		l.PushBack(v)
		return
	}
	page, at := l.find(i)
	for l.pages[page].Insert(at, v); l.pages[page].Len() > pageSize; {
		v = l.pages[page].PopBack()
		if page++; page == len(l.pages) {
			l.pages = append(l.pages, new(deque.Deque[string]))
		}
		l.pages[page].PushFront(v)
	}
	l.n++
}

// Index returns the place of the first element for which f is true, or -1.
func (l *list) Index(f func(v string) bool) int {
	before := 0
	for _, page := range l.pages {
		if i := page.Index(f); i >= 0 {
			return before + i
		}
		before += page.Len()
	}
	return -1
}

func (l *list) clone() *list {
	c := new(list)
	for i := range l.n {
		c.PushBack(l.At(i))
	}
	return c
}
