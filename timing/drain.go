package timing

import (
	"cmp"
	"slices"
	"time"
)

// Drain empties the wheel: it removes every pending timer, in the order of their deadlines, and
// calls f with each deadline. f may be nil. Deadlines are as they were given, not rounded up to a
// tick. Timers with the same one come in the order in which Advance would call them.
//
// The order is that of the moment when Drain is called. Timers that f stops are not visited, those
// that f moves keep their turn, and those that f adds stay pending. If f panics, those not visited
// yet stay pending too. Drain returns the wheel's memory unless timers are left.
func (w *Wheel) Drain(f func(when time.Duration)) {
	mustBeMade(w)
	for _, p := range w.inOrder() {
		when, ok := w.When(p.timer)
		if ok && w.Stop(p.timer) && f != nil {
			f(when)
		}
	}
	if w.Len() == 0 && !w.advancing {
		w.clear()
	}
}

// pending is a timer of a wheel.
type pending struct {
	when  time.Duration
	tick  uint64 // for which it is filed
	timer Timer
}

// inOrder returns the pending timers by deadline and tick. Of those with the same ones the older
// are farther ahead in their slot, which is the same.
func (w *Wheel) inOrder() []pending {
	all := make([]pending, 0, w.Len())
	for _, s := range w.slots {
		for i := s.first; i != 0; i = w.node(i).next {
			n := w.node(i)
			all = append(all, pending{n.when, w.tickOf(i, n), w.Handle(int(i))})
		}
	}
	slices.SortStableFunc(all, func(p, q pending) int {
		return cmp.Or(cmp.Compare(p.when, q.when), cmp.Compare(p.tick, q.tick))
	})
	return all
}
