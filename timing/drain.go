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
	w.mustBeMade() // end would make something of it that has no tick
	d := drain{wheel: w, rest: w.inOrder(), outer: w.drain}
	d.all = d.rest
	w.drain = &d
	w.forget() // so that Reset comes by file, which notes it
	defer d.end()
	for len(d.rest) > 0 {
		p := d.rest[0]
		d.rest = d.rest[1:]
		if when, ok := w.When(p.timer); !ok || when != p.when {
			continue // stopped, or moved to another place in rest
		}
		w.Stop(p.timer)
		if f != nil {
			f(p.when)
			d.takeMoved()
		}
	}
}

// drain is a Drain that is not over.
type drain struct {
	wheel *Wheel
	outer *drain    // this one was called by a function of that one
	all   []pending // when it began
	rest  []pending // to be visited, in order
	known map[Timer]bool
	moved []uint32 // nodes that were filed meanwhile: of timers that the function moved or added
}

// end gives memory back, also if the function has panicked. A Drain around this one still has nodes
// to look at.
func (d *drain) end() {
	w := d.wheel
	d.passOn()
	w.drain = d.outer
	if w.Len() == 0 && !w.advancing && w.drain == nil {
		w.reset()
	}
}

// passOn forgets what was moved, but tells a Drain around this one, which has it at its old place.
func (d *drain) passOn() {
	if d.outer != nil {
		d.outer.moved = append(d.outer.moved, d.moved...)
	}
	d.moved = d.moved[:0]
}

// takeMoved finds the new places of timers that the function has moved.
func (d *drain) takeMoved() {
	for _, i := range d.moved {
		t := Timer{wheel: d.wheel.id, index: i, gen: d.wheel.node(i).gen}
		when, ok := d.wheel.When(t)
		if !ok || !d.knows(t) {
			continue
		}
		d.insert(pending{when, t})
	}
	d.passOn()
}

// insert has a timer visited after those with the same deadline.
func (d *drain) insert(p pending) {
	at, _ := slices.BinarySearchFunc(d.rest, p.when, func(p pending, when time.Duration) int {
		if p.when <= when {
			return -1
		}
		return 1
	})
	for k := at - 1; k >= 0 && d.rest[k].when == p.when; k-- {
		if d.rest[k].timer == p.timer { // its deadline is what it was
			copy(d.rest[k:at-1], d.rest[k+1:at])
			d.rest[at-1] = p
			return
		}
	}
	d.rest = slices.Insert(d.rest, at, p)
}

// knows reports whether t was pending when the Drain began.
func (d *drain) knows(t Timer) bool {
	if d.known == nil {
		d.known = make(map[Timer]bool, len(d.all))
		for _, p := range d.all {
			d.known[p.timer] = true
		}
	}
	return d.known[t]
}

type pending struct {
	when  time.Duration
	timer Timer
}

// inOrder returns the pending timers by deadline. Of those with the same deadline the ones on a
// lower level are older, and the overdue ones, in the last list, the newest.
func (w *Wheel) inOrder() []pending {
	all := make([]pending, 0, w.Len())
	w.each(func(li *list) {
		for i := li.head; i != 0; i = w.link(i).next() {
			all = w.appendBlock(all, i)
		}
	})
	slices.SortStableFunc(all, func(a, b pending) int { return cmp.Compare(a.when, b.when) })
	return all
}

func (w *Wheel) appendBlock(all []pending, block uint32) []pending {
	b := w.block(block)
	for m := w.live(block); m != 0; m &= m - 1 {
		e := b.entry(m.first())
		t := Timer{wheel: w.id, index: e.index, gen: w.node(e.index).gen}
		all = append(all, pending{e.when(), t})
	}
	return all
}
