package handler

import "time"

const (
	// minSlots is how many slots a callRing begins with.
	minSlots = 8

	// noCall is the id of slot 0, which no call has: it would have another slot.
	noCall = 1<<64 - 1
)

// A call is one that is under way, or a free slot. Two of them fill a line of a processor's cache.
type call[A any] struct {
	done       func(A, error)
	id         uint64        // 0: free
	deadline   time.Duration // after Calls.base; but only a timeout from Calls.fresh on
	prev, next uint32        // slots of the list, or its own: it is not in the list
}

// A callRing keeps calls in slots: each has the one that its id says, modulo how many there are. Ids
// count up, so that calls which were begun together lie side by side. The processor fetches them in
// advance when their time is over, long after they have left its cache.
//
// At most three of four slots are used. So a free one is never far away, and the ids of slots that
// are still used are passed over:
//
//	slot    0   1   2   3   4   5   6   7
//	call    -   9  10   3   .   .   .   .    next comes 12: 11 would have the slot of 3
//
// Slot 0 has no call. It is where the list of calls by deadline begins and ends.
type callRing[A any] struct {
	slots []call[A] // their number is a power of two
	used  int
	last  uint64 // the latest id
	ids   uint64 // which are counted modulo this + 1
}

func newCallRing[A any](idBits int) callRing[A] {
	return callRing[A]{slots: emptySlots[A](minSlots), ids: 1<<idBits - 1}
}

func emptySlots[A any](n int) []call[A] {
	slots := make([]call[A], n)
	slots[0].id = noCall
	return slots
}

// take returns a slot for a call with the next id.
func (r *callRing[A]) take() uint32 {
	if r.used >= len(r.slots)/4*3 {
		r.grow()
	}
	for {
		r.last = (r.last + 1) & r.ids
		at := r.slotOf(r.last)
		if k := &r.slots[at]; k.id == 0 {
			k.id = r.last
			r.used++
			return at
		}
	}
}

func (r *callRing[A]) slotOf(id uint64) uint32 { return uint32(id & uint64(len(r.slots)-1)) }

// find returns the slot of the call that is under way with that id, or 0.
func (r *callRing[A]) find(id uint64) uint32 {
	if at := r.slotOf(id); r.slots[at].id == id {
		return at
	}
	return 0
}

// free empties a slot.
func (r *callRing[A]) free(at uint32) {
	k := &r.slots[at]
	k.done, k.id = nil, 0
	r.slots[k.prev].next, r.slots[k.next].prev = k.next, k.prev
	r.used--
}

// push puts a call behind all others of the list.
func (r *callRing[A]) push(at uint32) {
	last := r.slots[0].prev
	r.slots[at].prev, r.slots[at].next = last, 0
	r.slots[last].next, r.slots[0].prev = at, at
}

// setApart has a call be in no list.
func (r *callRing[A]) setApart(at uint32) {
	r.slots[at].prev, r.slots[at].next = at, at
}

// firstInList and lastInList return 0 if the list is empty.
func (r *callRing[A]) firstInList() uint32 { return r.slots[0].next }
func (r *callRing[A]) lastInList() uint32  { return r.slots[0].prev }

// grow doubles the slots. No two calls get the same one, as their ids differ by less already.
func (r *callRing[A]) grow() {
	old := r.slots
	r.slots = emptySlots[A](2 * len(old))
	for at := old[0].next; at != 0; at = old[at].next {
		r.push(r.move(&old[at]))
	}
	for at := range old[1:] {
		if k := &old[1+at]; k.id != 0 && k.next == uint32(1+at) {
			r.setApart(r.move(k))
		}
	}
}

func (r *callRing[A]) move(k *call[A]) uint32 {
	at := r.slotOf(k.id)
	r.slots[at] = *k
	return at
}
