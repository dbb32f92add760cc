package redisgroup

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// An order is where an ordered room stands in this process. The room's lock guards it, and is held
// while a broadcast is posted: so local members see the order of the stream.
//
// The room is subscribed first, and then asks for all that follows the last entry it has, that one
// included: if it comes back, nothing is missing. From then on the next number is delivered, an
// older one dropped, and at anything else the room asks again.
//
// A stream may go back: Redis was restarted with an old file, or the room was deleted. What was
// published before that may still wait in the connection, and would follow where the stream stands
// now, though it was delivered. So once it is seen that the stream has gone back, nothing is taken
// until the room has passed a barrier: what comes after that was published after it. One who joins
// may have had more elsewhere than the room had here; it waits for that, too.
type order struct {
	known      bool // last is
	last       Position
	server     string // that wrote the last entry; "" if that is not known
	next       string // the id with which Redis gives the next one its number
	subscribed bool   // all that was published before the last barrier has come
	emptied    bool   // the stream was empty when it was read last, and could not be begun: that was told
	dirty      bool   // something came that did not follow, since the room asked
	asking     bool

	barriers int  // how many were asked for, see renew
	asked    int  // barriers when it asked
	settled  int  // barriers before what was answered last
	again    bool // one more, once this one has settled
	back     bool // the stream has gone back: it takes nothing until the barrier

	joins     map[*joining]struct{}
	tail      []Entry  // what was delivered since the first of them
	tailFrom  Position // what precedes the tail
	tailBytes int
	gaps      int
}

// take takes an entry that was published.
func (r *room) take(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	switch {
	case o.back:
	case o.known && e.Position.follows(o.last):
		r.accept(e)
	case o.known && e.Position.Epoch == o.last.Epoch && e.Position.Number <= o.last.Number:
	default:
		r.ask()
	}
}

// ask has the room ask for what it misses. r.mu is held.
func (r *room) ask() {
	o := &r.order
	o.dirty = true
	if o.known && o.subscribed && !o.asking {
		o.asking = r.hub.asking.add(&outgoing{place: r.place, op: opCatchUp, room: r}) == nil
	}
}

// beginAsking returns what the room has, when it is about to ask for what follows. false: it asks
// later, when it is subscribed.
func (r *room) beginAsking() (from Position, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	ok = o.subscribed && o.known
	o.dirty = o.dirty && !ok
	o.asking, o.asked = ok, o.barriers
	return o.last, ok
}

// confirmed is called when the room's subscription stands, and that barrier was passed.
func (r *room) confirmed(barrier int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	if r.kind == orderedRoom && barrier == o.barriers { // else the one that is wanted is on its way
		o.subscribed, o.back = true, false
		r.ask()
	}
}

// renew has the room told when all that was published so far has come, and returns the number of
// that barrier. One who joins may ask for it without reason: so each has settled before the next
// begins. r.mu is held.
func (r *room) renew() int {
	o := &r.order
	if !o.subscribed || o.settled != o.barriers {
		o.again = true
		return o.barriers + 1
	}
	o.barriers++
	o.subscribed, o.again = false, false
	r.hub.masters.link(r.bucket).subs.touch(r.channel)
	return o.barriers
}

func (r *room) barrier() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.barriers
}

func (r *room) lostSubscription() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order.subscribed = false
}

// peeked is told where the stream stood before anything that was published since the room was held.
func (r *room) peeked(p Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := &r.order; !o.known {
		o.known, o.last, o.tailFrom = true, p, p
		r.ask()
		r.checkJoins()
	}
}

// accept delivers the next entry. r.mu is held.
func (r *room) accept(e Entry) {
	o := &r.order
	if e.Position.Epoch != o.last.Epoch && !o.last.IsZero() {
		r.reassert()
	}
	if o.server != e.server || o.last.Epoch != e.Position.Epoch {
		o.server, o.next = strings.Clone(e.server), strconv.FormatUint(e.Position.Epoch, 10)+"-*"
	}
	o.last, o.emptied = e.Position, false
	var except loop.Ref
	if e.node == r.hub.node {
		except = r.unexcept(e.seq)
	}
	if e.msg != nil {
		r.deliver(e.Position, except, e.msg)
	}
	if len(o.joins) > 0 {
		r.keep(e)
		r.checkJoins()
	}
}

// deliver broadcasts here. A loop that takes nothing more leaves a hole, which is told once it
// does. r.mu is held.
func (r *room) deliver(at Position, except loop.Ref, msg []byte) {
	for _, l := range fullLoops(r.local.BroadcastExcept(except, msg)) {
		r.hub.stats.gaps.Add(1)
		r.tellGap(l, &Gap{
			Room: r.name, From: Position{at.Epoch, at.Number - 1}, To: Position{at.Epoch, at.Number + 1}, Why: "the loop's mailbox was full",
		})
	}
}

// fullLoops returns the loops that were not reached because their mailboxes are full.
func fullLoops(err error) (loops []*loop.Loop) {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range j.Unwrap() {
			loops = append(loops, fullLoops(e)...)
		}
		return loops
	}
	var u *handler.UnreachedError
	if errors.As(err, &u) && errors.Is(err, loop.ErrMailboxFull) {
		return []*loop.Loop{u.Loop}
	}
	return nil
}

// tellGap tells the members on one loop of a gap, or all members if l is nil.
func (r *room) tellGap(l *loop.Loop, g *Gap) {
	r.each(l, func(c *loop.Conn) {
		if r.hub.cfg.OnGap != nil {
			r.hub.cfg.OnGap(c, g)
		} else {
			c.CloseWithError(g)
		}
	})
}

// mailboxRetry is when a loop is tried again whose mailbox was full.
const mailboxRetry = 10 * time.Millisecond

// each calls f for the members on one loop, or for all members if on is nil: for those whose
// mailbox is full as soon as it takes something.
func (r *room) each(on *loop.Loop, f func(c *loop.Conn)) {
	err := r.local.Each(func(c *loop.Conn) {
		if on == nil || c.Loop() == on {
			f(c)
		}
	})
	for _, full := range fullLoops(err) {
		if on == nil || full == on {
			r.hub.after(mailboxRetry, func() { r.each(full, f) })
		}
	}
}

// replayed adds to msgs what one who joins gets of e.
func (h *Hub) replayed(msgs [][]byte, e Entry) [][]byte {
	e.Replayed = true
	if msg := h.form(e); msg != nil {
		msgs = append(msgs, msg)
	}
	return msgs
}

// form is Config.Form, which is user code: no lock is held.
func (h *Hub) form(e Entry) (msg []byte) {
	if e.Kind == begun {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			h.report(fmt.Errorf("redisgroup: panic in Config.Form: %v", v))
		}
	}()
	return h.cfg.Form(e)
}

// gap tells all members that something is missing. r.mu is held.
func (r *room) gap(to Position, why string) {
	o := &r.order
	o.gaps++
	r.hub.stats.gaps.Add(1)
	o.tail, o.tailBytes, o.tailFrom = nil, 0, Position{} // who is joining reads again
	r.tellGap(nil, &Gap{Room: r.name, From: o.last, To: to, Why: why})
	r.reassert()
}

// asked is told what follows the entry from: got, with that entry if it is still there; all of it,
// or the first ones.
func (r *room) asked(from Position, got []Entry, end Position, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	if o.asked != o.barriers { // it may be of before the stream went back
		o.asking = false
		r.ask()
		return
	}
	o.settled = o.asked
	before := o.last
	got = r.resume(from, got, end)
	for _, e := range got {
		r.accept(e)
	}
	if o.last != before {
		r.hub.stats.caughtUp.Add(uint64(len(got)))
	}
	o.asking = false
	if !all || o.dirty {
		r.ask()
	}
	if o.again {
		r.renew()
	}
	r.checkJoins()
}

// resume returns the entries that come next, and tells of a gap if what is between is missing. r.mu
// is held.
func (r *room) resume(from Position, got []Entry, end Position) []Entry {
	o := &r.order
	for i, e := range got {
		if e.Position == o.last {
			return got[i+1:]
		}
		if e.Position.follows(o.last) {
			return got[i:]
		}
	}
	if o.last != from {
		for i, e := range got {
			if e.Position.Compare(o.last) > 0 {
				r.gap(e.Position, "Redis has trimmed them")
				return got[i:]
			}
		}
		return nil // what was read is older than what came meanwhile
	}
	if len(got) == 0 {
		if from.IsZero() || end.IsZero() && o.emptied {
			return nil
		}
		r.gap(end, "Redis has lost them, or the room was deleted")
		// An empty stream may be followed by one of an old file. So where the room stood is kept:
		// what is not after that is never delivered again.
		if o.emptied = end.IsZero(); !o.emptied {
			o.last, o.tailFrom = end, end
		}
		o.back = true
		r.renew()
		return nil
	}
	why := "Redis has trimmed them"
	if got[0].Position.Epoch != from.Epoch {
		why = "Redis has lost them, or the room was deleted"
	}
	r.gap(got[0].Position, why)
	return got
}

// deny tells those who are joining that the room cannot be subscribed to, and Config.OnError.
func (r *room) deny(err error) {
	e := &SubscribeError{Room: r.name, Err: err}
	r.mu.Lock()
	for j := range r.order.joins {
		r.refuse(j, e)
	}
	r.mu.Unlock()
	r.hub.report(e)
}
