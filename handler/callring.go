package handler

const (
	// minSlots is how many slots a callRing begins with.
	minSlots = 8

	// spareSlots is how many slots a callRing keeps though few are used: 64 KiB.
	spareSlots = 4096

	// noCall is the number of slot 0, which no call has: it would have another slot.
	noCall = 1<<64 - 1
)

// A call is one that is under way, or a free slot. Four of them fill a line of a processor's cache.
type call[A any] struct {
	done   func(A, error)
	number uint64 // 0: free
}

// A callRing keeps calls in slots: each has the one that its number says, modulo how many there are.
// Numbers count up, and never come again. The id of a call is the last bits of its number: there are
// at least as many ids as slots, so that it tells the slot, too.
//
// So calls that were begun together lie side by side. The processor fetches them in advance when
// their time is over, long after they have left its cache.
//
// At most three of four slots are used. So a free one is never far away, and the numbers of slots
// that are still used are passed over:
//
//	slot    0   1   2   3   4   5   6   7
//	call    -   9  10   3   .   .   .   .    next comes 12: 11 would have the slot of 3
//
// Slot 0 has no call: no id is 0.
type callRing[A any] struct {
	slots []call[A] // their number is a power of two
	used  int
	room  int    // how many may be used before fill is called
	last  uint64 // the latest number
	ids   uint64 // the bits of a number that are the id
	calm  bool   // room is that of a ring of half as many slots
	large func() // called when there are more slots than spareSlots, may be nil
}

func newCallRing[A any](idBits int) callRing[A] {
	r := callRing[A]{ids: 1<<idBits - 1}
	r.empty(minSlots)
	return r
}

// empty gives r new slots.
func (r *callRing[A]) empty(n int) {
	r.slots, r.room = make([]call[A], n), n/4*3
	r.slots[0].number = noCall
}

// take puts a call into the next free slot, and returns its number.
func (r *callRing[A]) take(done func(A, error)) uint64 {
	if r.used >= r.room {
		r.fill()
	}
	slots, n := r.slots, r.last
	for {
		n++
		if k := &slots[n&uint64(len(slots)-1)]; k.number == 0 {
			k.done, k.number = done, n
			r.used++
			r.last = n
			return n
		}
	}
}

func (r *callRing[A]) slotOf(n uint64) uint32 { return uint32(n & uint64(len(r.slots)-1)) }

// find returns the slot of the call that is under way with that id, or 0.
func (r *callRing[A]) find(id uint64) uint32 {
	if at := r.slotOf(id); r.slots[at].number&r.ids == id {
		return at
	}
	return 0
}

// next returns the first call of [from, to) that is under way, or to.
func (r *callRing[A]) next(from, to uint64) uint64 {
	slots := r.slots
	mask := uint64(len(slots) - 1)
	for ; from < to; from++ {
		if slots[from&mask].number == from {
			break
		}
	}
	return from
}

// before returns the last call of [from, to) that is under way, or from-1. There are no numbers from 0
// down.
func (r *callRing[A]) before(from, to uint64) uint64 {
	for to--; to >= from; to-- {
		if r.slots[r.slotOf(to)].number == to {
			break
		}
	}
	return to
}

// free empties a slot, and returns what was to be called.
func (r *callRing[A]) free(at uint32) (done func(A, error)) {
	k := &r.slots[at]
	done = k.done
	k.done, k.number = nil, 0
	r.used--
	return done
}

// fill makes room.
func (r *callRing[A]) fill() {
	if r.calm {
		r.calm, r.room = false, len(r.slots)/4*3
		return
	}
	r.grow()
	if len(r.slots) > spareSlots && r.large != nil {
		r.large()
	}
}

// grow doubles the slots. No two calls get the same one, as they have different ones already.
func (r *callRing[A]) grow() {
	old := r.slots
	r.empty(2 * len(old))
	for _, k := range old[1:] {
		if k.number != 0 {
			r.slots[r.slotOf(k.number)] = k
		}
	}
}

// relax is called now and then. It gives up slots if few were used at any time since it was called
// before, and reports whether it did, and whether there are still more than spareSlots. Whether few
// are used is seen by take without a price: until it meets a lower room.
func (r *callRing[A]) relax() (shrunk, large bool) {
	if few := len(r.slots) / 8; r.calm && len(r.slots) > spareSlots {
		shrunk = r.shrink(max(spareSlots, len(r.slots)/4))
	} else if r.used < few {
		r.calm, r.room = true, few
	}
	return shrunk, len(r.slots) > spareSlots
}

// shrink moves all calls to n slots, unless two would get the same one.
func (r *callRing[A]) shrink(n int) bool {
	old, room := r.slots, r.room
	r.empty(n)
	for left, at := r.used, 1; left > 0; at++ {
		k := &old[at]
		if k.number == 0 {
			continue
		}
		to := &r.slots[r.slotOf(k.number)]
		if to.number != 0 {
			r.slots, r.room = old, room
			return false
		}
		*to = *k
		left--
	}
	r.calm = false
	return true
}
