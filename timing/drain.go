package timing

import (
	"cmp"
	"slices"
	"time"
)

// Drain empties the wheel: it removes every pending timer, in the order of their deadlines, and
// calls f with each deadline. f may be nil. Deadlines are as they were given, not rounded up to a
// tick; timers with the same one come in the order they were added or reset.
//
// Timers that f stops are not visited. A timer that f moves is visited once, at its new deadline.
// Timers that f adds stay pending. If f panics, those not visited yet stay pending too. Drain
// returns the wheel's memory unless timers are left.
func (w *Wheel) Drain(f func(when time.Duration)) {
	w.mustBeMade()
	rest := w.inOrder()
	moved := len(w.moved)    // of a Drain around this one
	var latest map[Timer]int // which entry of a timer counts, since f has moved some; -1 for all others
	if w.drains++; w.drains == 1 {
		defer w.endDrains()
	}
	defer func() { w.drains-- }()
	for k := 0; len(rest) > 0; k++ {
		p := rest[0]
		rest = rest[1:]
		if !w.Pending(p.timer) || latest != nil && latest[p.timer] != p.entry {
			continue
		}
		w.Stop(p.timer)
		if f != nil {
			f(p.when)
		}
		if moved == len(w.moved) {
			continue
		}
		if latest == nil {
			latest = make(map[Timer]int)
			for _, p := range rest {
				latest[p.timer] = 0
			}
		}
		for ; moved < len(w.moved); moved++ {
			t := w.moved[moved]
			when, ok := w.When(t)
			if _, known := latest[t]; !ok || !known { // not one that f added
				continue
			}
			latest[t]++
			p := pending{when, t, latest[t]}
			at, _ := slices.BinarySearchFunc(rest, when, func(p pending, when time.Duration) int {
				return cmp.Or(cmp.Compare(p.when, when), -1) // behind those with the same
			})
			rest = slices.Insert(rest, at, p)
		}
	}
}

// endDrains gives memory back, also if the function has panicked.
func (w *Wheel) endDrains() {
	w.moved = nil
	if w.Len() == 0 && !w.advancing {
		w.clear()
	}
}

// pending is a timer in the order of the deadlines.
type pending struct {
	when  time.Duration
	timer Timer
	entry int // counts the entries of this timer, of which the last counts
}

// inOrder returns the pending timers by deadline. Of those with the same deadline the older are on
// lower levels and farther ahead in their lists, and those that were overdue when they were added
// are the youngest.
func (w *Wheel) inOrder() []pending {
	var all, overdue []pending
	for at := range w.slots {
		for i := w.slots[at].first; i != 0; i = w.node(i).next {
			n := w.node(i)
			p := pending{when: n.when, timer: Timer{w.id, i, n.gen}}
			if n.round != 0 {
				overdue = append(overdue, p)
			} else {
				all = append(all, p)
			}
		}
	}
	all = append(all, overdue...)
	slices.SortStableFunc(all, func(a, b pending) int { return cmp.Compare(a.when, b.when) })
	return all
}
