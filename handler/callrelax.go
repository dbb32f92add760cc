package handler

import "time"

// relaxAfter is how long memory for calls is kept that is not used.
const relaxAfter = 10 * time.Second

// relaxLater has relax called, which goes on until there is nothing more to be given back.
func (cs *Calls[A]) relaxLater() {
	if !cs.relaxes {
		cs.relaxes = true
		cs.conn.AfterFunc(relaxAfter, cs.relax)
	}
}

// relax gives back memory of a burst: a connection that stands for months may have had one on its
// first day.
func (cs *Calls[A]) relax() {
	cs.relaxes = false
	shrunk, large := cs.ring.relax()
	if large {
		cs.relaxLater()
	}
	if !shrunk {
		return
	}
	cs.marks.shrink()
	cs.odd.shrink()
	cs.names.shrink()
	if cs.less != nil {
		cs.less()
	}
}

// shrink gives up memory that is not used.
func (o *oddCalls) shrink() {
	if o != nil {
		o.spare = nil
		o.calls = renewed(o.calls)
	}
}

// shrink gives up memory that is not used.
func (n *callNames) shrink() {
	if n != nil {
		n.ids, n.of = renewed(n.ids), renewed(n.of)
	}
}

// renewed returns a map with what is in m: a map does not give back memory by itself.
func renewed[K comparable, V any](m map[K]V) map[K]V {
	fresh := make(map[K]V, len(m))
	for k, v := range m {
		fresh[k] = v
	}
	return fresh
}
