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
// until the room is subscribed anew: what comes behind that was published after. One who joins may
// have had more elsewhere than the room had here; it waits for that, too.
type order struct {
	known      bool // last is
	last       Position
	server     string // that wrote the last entry; "" if that is not known
	next       string // the id with which Redis gives the next one its number
	subscribed bool
	denied     *SubscribeError // not nil: it cannot be, until Redis changes its mind
	deniedTold bool
	emptied    bool // the stream was empty when it was read last, and could not be begun: that was told
	dirty      bool // something came that did not follow, since the room asked
	asking     bool
	renewals   int  // how often it has wanted to be subscribed anew
	renewing   bool // it takes nothing until then
	another    bool // once more, once it has asked
	asked      int  // renewals when it asked
	settled    int  // renewals before what was answered last

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
	case o.renewing:
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
		o.asking = true
		r.hub.servers.link(r.bucket).past.add(r)
	}
}

// confirmed is called when the room's subscription stands, which was made for that renewal.
func (r *room) confirmed(renewal int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order.denied, r.order.deniedTold = nil, false
	if r.kind != orderedRoom {
		return
	}
	if renewal != r.order.renewals {
		return // the one that is wanted is on its way
	}
	r.order.subscribed, r.order.renewing = true, false
	r.ask()
}

// renew has the room subscribed anew. r.mu is held.
func (r *room) renew() {
	o := &r.order
	o.renewals++
	o.subscribed, o.another = false, false
	r.hub.servers.link(r.bucket).subs.renew(r)
}

// renewSoon returns the number of a renewal that begins from now on. One who joins may ask for it
// without reason: so each is waited for before the next. r.mu is held.
func (r *room) renewSoon() int {
	o := &r.order
	if o.subscribed && o.settled == o.renewals {
		r.renew()
		return o.renewals
	}
	o.another = true
	return o.renewals + 1
}

func (r *room) renewals() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.renewals
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
	err := r.local.BroadcastExcept(except, msg)
	if err == nil {
		return
	}
	var u *handler.UnreachedError
	for _, e := range unjoin(err) {
		if errors.As(e, &u) && errors.Is(e, loop.ErrMailboxFull) {
			g := &Gap{Room: r.name, From: Position{at.Epoch, at.Number - 1}, To: Position{at.Epoch, at.Number + 1}, Why: "the loop's mailbox was full"}
			r.hub.stats.gaps.Add(1)
			r.tellLoop(u.Loop, g)
		}
	}
}

func unjoin(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, unjoin(e)...)
		}
		return all
	}
	return []error{err}
}

// tellLoop tells the members on one loop of a gap, as soon as that takes something.
func (r *room) tellLoop(l *loop.Loop, g *Gap) {
	err := r.local.Each(func(c *loop.Conn) {
		if c.Loop() == l {
			r.hub.tellGap(c, g)
		}
	})
	var u *handler.UnreachedError
	for _, e := range unjoin(err) {
		if errors.As(e, &u) && u.Loop == l && errors.Is(e, loop.ErrMailboxFull) {
			_, _ = r.hub.timers.AfterFunc(mailboxRetry, func() { r.tellLoop(l, g) })
		}
	}
}

// mailboxRetry is when a loop is tried again whose mailbox was full.
const mailboxRetry = 10 * time.Millisecond

// formed returns e with what members get of it.
func (h *Hub) formed(e Entry) Entry {
	e.msg = h.form(e)
	return e
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
	g := &Gap{Room: r.name, From: o.last, To: to, Why: why}
	for _, l := range r.loopsOf(r.local.Each(func(c *loop.Conn) { r.hub.tellGap(c, g) })) {
		_, _ = r.hub.timers.AfterFunc(mailboxRetry, func() { r.tellLoop(l, g) })
	}
	r.reassert()
}

// loopsOf returns the loops that were not reached because their mailboxes are full.
func (r *room) loopsOf(err error) (loops []*loop.Loop) {
	if err == nil {
		return nil
	}
	var u *handler.UnreachedError
	for _, e := range unjoin(err) {
		if errors.As(e, &u) && errors.Is(e, loop.ErrMailboxFull) {
			loops = append(loops, u.Loop)
		}
	}
	return loops
}

func (h *Hub) tellGap(c *loop.Conn, g *Gap) {
	if h.cfg.OnGap != nil {
		h.cfg.OnGap(c, g)
		return
	}
	c.CloseWithError(g)
}

// asked is told what follows the entry from: got, with that entry if it is still there; all of it,
// or the first ones.
func (r *room) asked(from Position, got []Entry, end Position, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	if o.asked != o.renewals { // it may be of before the stream went back
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
	if o.another {
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
		// what is not behind that is never delivered again.
		if o.emptied = end.IsZero(); !o.emptied {
			o.last, o.tailFrom = end, end
		}
		o.renewing = true
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

// deny tells those who are joining that they cannot, as err says, and reports whether that is news.
func (r *room) deny(err error) (e *SubscribeError, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = &SubscribeError{Room: r.name, Err: err}
	news = !r.order.deniedTold
	r.order.denied, r.order.deniedTold = e, true
	for j := range r.order.joins {
		r.refuse(j, e)
	}
	return e, news
}

// denyAgain makes the next denial news, as this one was not told.
func (r *room) denyAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order.deniedTold = false
}
