package handler

const (
	// minSlots is how many slots a callRing begins with.
	minSlots = 8

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
	room  int    // how many may be used
	last  uint64 // the latest number
	ids   uint64 // the bits of a number that are the id
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
		r.grow()
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
