package store

// entries are the keys, which know their places. The zero entries is empty.
type entries struct{ pages[*entry] }

// add adds e at the end.
func (l *entries) add(e *entry) {
	e.pos = l.len()
	l.push(e)
}

// remove puts the last entry into the place of e, as dict does.
func (l *entries) remove(e *entry) {
	if last := l.pop(); last != e {
		*l.at(e.pos) = last
		last.pos = e.pos
	}
}

// has reports whether e is in the list.
func (l *entries) has(e *entry) bool { return e.pos < l.len() && *l.at(e.pos) == e }

// slice returns a copy of the entries at [from, to).
func (l *entries) slice(from, to int) []*entry {
	s := make([]*entry, 0, to-from)
	for e := range l.part(from, to) {
		s = append(s, e)
	}
	return s
}
