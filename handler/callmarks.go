package handler

import "time"

// A callMark is a deadline that calls share which were begun one after the other: with the same
// timeout, in one turn of the loop. Some of them may have ended, or have timers of their own.
type callMark struct {
	first, end uint64        // their numbers: [first, end)
	when       time.Duration // after Calls.base; but only a timeout in those that are fresh
}

// callMarks are deadlines in the order in which they come, which is that of the calls, too.
//
//	list    .  .  A  B  C  D  E
//	              |        |
//	              head     fresh: since this turn began
type callMarks struct {
	list  []callMark
	head  int
	fresh int
}

func (m *callMarks) len() int       { return len(m.list) - m.head }
func (m *callMarks) hasFresh() bool { return m.fresh < len(m.list) }

// due reports whether there is a mark before those that are fresh.
func (m *callMarks) due() bool { return m.head < m.fresh }

func (m *callMarks) last() *callMark { return &m.list[len(m.list)-1] }

// push adds a mark. What the first ones have left is used again if that is half of the list.
func (m *callMarks) push(k callMark) {
	if len(m.list) == cap(m.list) && m.head >= len(m.list)/2 {
		m.keep(m.list[:copy(m.list, m.list[m.head:])], m.fresh-m.head)
	}
	m.list = append(m.list, k)
}

func (m *callMarks) keep(list []callMark, fresh int) { m.list, m.head, m.fresh = list, 0, fresh }

// shrink gives up memory that is not used.
func (m *callMarks) shrink() {
	if cap(m.list) > 4*(m.len()+spareMarks) {
		m.keep(append(make([]callMark, 0, 2*m.len()), m.list[m.head:]...), m.fresh-m.head)
	}
}

// drop removes the first mark.
func (m *callMarks) drop() {
	if m.head++; m.head == len(m.list) {
		m.keep(m.list[:0], 0)
	}
}

// dropLast removes the last mark, which is not fresh.
func (m *callMarks) dropLast() {
	m.list = m.list[:len(m.list)-1]
	m.fresh--
	if m.head == len(m.list) {
		m.keep(m.list[:0], 0)
	}
}
