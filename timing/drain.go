package timing

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// Drain empties the wheel: it removes every pending timer, in the order of their deadlines, and
// calls f with each deadline. f may be nil. Deadlines are as they were given, not rounded up to a
// tick. Timers with the same one come in the order in which Advance would call them.
//
// Timers that f stops are not visited. A timer that f moves is visited once, at its new deadline.
// Timers that f adds stay pending. If f panics, those not visited yet stay pending too. Drain
// returns the wheel's memory unless timers are left.
func (w *Wheel) Drain(f func(when time.Duration)) {
	mustBeMade(w)
	rest := w.inOrder()
	moved := len(w.moved)       // of a Drain around this one
	var latest map[Timer]uint32 // which entry of a timer counts, once f has moved one
	w.drains++
	defer w.endDrain()
	for len(rest) > 0 {
		p := rest[0]
		rest = rest[1:]
		if !w.Pending(p.timer) || latest != nil && latest[p.timer] != p.entry {
			continue
		}
		w.Stop(p.timer)
		if f != nil {
			f(p.when)
		}
		if latest == nil && moved < len(w.moved) {
			latest = make(map[Timer]uint32)
			for _, p := range rest {
				latest[p.timer] = 0
			}
		}
		for ; moved < len(w.moved); moved++ {
			t := w.moved[moved]
			if _, known := latest[t]; !known || !w.Pending(t) { // f has added it, or stopped it
				continue
			}
			latest[t]++
			p := w.inDrain(t.index)
			p.entry = latest[t]
			at, _ := slices.BinarySearchFunc(rest, p, func(a, b pending) int {
				return cmp.Or(a.compare(b), -1) // after its equals
			})
			rest = slices.Insert(rest, at, p)
		}
	}
}

// endDrain gives memory back, also if the function has panicked.
func (w *Wheel) endDrain() {
	if w.drains--; w.drains > 0 {
		return
	}
	w.moved = nil
	if w.Len() == 0 && !w.advancing {
		w.clear()
	}
}

// pending is a timer in the order of a Drain.
type pending struct {
	when  time.Duration
	tick  uint64 // for which it is filed
	timer Timer
	entry uint32 // counts the entries of this timer, of which the last counts
}

func (p pending) compare(q pending) int {
	return cmp.Or(cmp.Compare(p.when, q.when), cmp.Compare(p.tick, q.tick))
}

func (w *Wheel) inDrain(i uint32) pending {
	n := w.node(i)
	return pending{when: n.when, tick: w.tickOf(i, n), timer: Timer{w.id, i, n.gen}}
}

// inOrder returns the pending timers by deadline and tick. Of those with the same ones the older
// are farther ahead in their slot, which is the same.
func (w *Wheel) inOrder() []pending {
	all := make([]pending, 0, w.Len())
	for i := range w.pending() {
		all = append(all, w.inDrain(i))
	}
	slices.SortStableFunc(all, pending.compare)
	return all
}

// pending yields the nodes of all slots.
func (w *Wheel) pending() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for _, s := range w.slots {
			for i := s.first; i != 0; i = w.node(i).next {
				if !yield(i) {
					return
				}
			}
		}
	}
}
