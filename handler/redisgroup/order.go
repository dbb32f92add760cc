package redisgroup

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/loop"
)

// An order is where an ordered room stands in this process. The room's lock guards it, and is held
// while a broadcast is posted: so local members see the order of the stream.
//
// The room is subscribed first, and then reads what follows the last entry it has, that one
// included: if it comes back, nothing is missing. From then on the next number is delivered, an
// older one dropped, and at anything else the room reads again.
//
// A stream may go back, as Redis was restarted with an old file, or the room was deleted. Messages
// from before may still wait in the connection, and seem to follow. So the room is subscribed to
// once more then, as when the subscription was lost, and takes nothing until Redis has answered. So
// it is, too, when one who joins had more elsewhere, or says so: once for each end of the stream.
type order struct {
	last        Position // of what was delivered; zero while that is not known
	phase       phase
	readPending bool     // what was missed: an answer will come
	wentBack    Position // where the stream ended that had gone back: the room was renewed for that

	roster    *roster // nil: nobody has asked for it, or it was lost
	joins     map[*joining]struct{}
	tail      []Entry // what was delivered since the first of them
	tailBytes int
	tailFrom  Position // what precedes the tail
}

// A phase says what an ordered room does with what is published.
type phase int

const (
	unsubscribed phase = iota // what is published is dropped
	missing                   // something was missed; what follows the last entry is taken
	catchingUp                // as missing, but all that was missed has been asked for
	live                      // nothing is missing
)

// take takes an entry that was published.
func (r *room) take(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	switch {
	case o.last.IsZero() || o.phase == unsubscribed:
	case e.Position.follows(o.last):
		r.accept(e)
	case e.Position.Epoch == o.last.Epoch && e.Position.Number <= o.last.Number:
	default:
		r.read()
	}
}

// read requests the entries that the room misses. r.mu is held.
func (r *room) read() {
	o := &r.order
	o.phase = missing
	if !o.last.IsZero() && !o.readPending {
		o.readPending = true // also if that fails, as the Hub is closed then
		_ = r.hub.querySenders[r.bucket].add(&request{place: r.place, op: opQuery, query: catchUp{r}})
	}
}

// confirmed is called when the subscription stands. r.mu is held.
func (r *room) confirmed() {
	if r.kind == orderedRoom && r.order.phase == unsubscribed {
		r.read()
	}
}

// renew has the room subscribed to once more, and wait for that. r.mu is held.
func (r *room) renew() {
	r.order.phase = unsubscribed
	r.hub.subscribers[r.bucket].touch(r.channel, true)
}

// peeked takes where the stream stood before anything that was published since the room was held.
func (r *room) peeked(p Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := &r.order; o.last.IsZero() {
		o.last = p
		o.cut(p)
		if o.phase != unsubscribed {
			r.read()
		}
	}
}

// accept delivers the next entry. r.mu is held.
func (r *room) accept(e Entry) {
	o := &r.order
	if e.Position.Epoch != o.last.Epoch {
		r.hub.republishPresence(r.place)
		r.loseRoster()
	}
	o.last = e.Position
	if o.roster != nil {
		o.roster.take(e)
	}
	var except loop.Ref
	if e.node == r.hub.node {
		except, _ = r.hub.skipSenders.Remove(e.seq)
	}
	if e.msg != nil {
		r.deliver(e, except)
	}
	if len(o.joins) > 0 {
		r.keep(e)
		r.checkJoins()
	}
}

// deliver broadcasts here. A loop whose mailbox is full gets the gap later. r.mu is held.
func (r *room) deliver(e Entry, except loop.Ref) {
	err := r.local.BroadcastExcept(except, e.msg)
	if errors.Is(err, loop.ErrMailboxFull) {
		r.hub.count(&r.hub.stats.Gaps)
		g := &Gap{r.name, e.Position, e.Position, "the loop's mailbox was full"}
		g.From.Number--
		g.To.Number++
		r.insist(err, func(c *loop.Conn) { r.hub.cfg.OnGap(c, g) })
	}
}

// each calls f for the members here: for those whose mailbox is full as soon as it takes something.
func (r *room) each(f func(c *loop.Conn)) { r.insist(r.local.Each(f), f) }

// insist calls f for the members that err says were not reached as their loops' mailboxes are full:
// as soon as those take something.
func (r *room) insist(err error, f func(c *loop.Conn)) {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range all.Unwrap() {
			r.insist(e, f)
		}
		return
	}
	var u *handler.UnreachedError
	if errors.As(err, &u) && errors.Is(err, loop.ErrMailboxFull) {
		u.Loop.Post(func() {
			for c := range *r.hub.members.Get(u.Loop) {
				if r.local.Has(c) {
					f(c)
				}
			}
		})
	}
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

// gap tells all members that something is missing. Those who join read again. r.mu is held.
func (r *room) gap(g *Gap) {
	r.hub.count(&r.hub.stats.Gaps)
	r.each(func(c *loop.Conn) { r.hub.cfg.OnGap(c, g) })
	r.order.cut(g.To)
	r.loseRoster()
	for j := range r.order.joins {
		if j.state != joinReading && j.arrive.Err == nil {
			r.readFor(j)
		}
	}
	r.hub.republishPresence(r.place)
}

// A catchUp is the query for what a room has missed.
type catchUp struct{ room *room }

// Bounds of an answer to it.
const (
	maxMissed      = 256 // entries
	maxMissedBytes = 64 << 10
)

func (q catchUp) void() bool   { return q.room.forgotten.Load() }
func (q catchUp) refuse(error) {}

func (q catchUp) command() (*onredis.Script, []string, []any) {
	r := q.room
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	if o.phase == unsubscribed { // it asks when it is subscribed
		o.readPending = false
		return nil, nil, nil
	}
	o.phase = catchingUp
	args := []any{o.last.String(), maxMissed, maxMissedBytes}
	return catchUpScript, []string{r.key}, append(args, r.hub.streamArgs()...)
}

// answered has what Redis refuses asked again after a while, and all else that fails at once.
func (q catchUp) answered(cmd *redis.Cmd) error {
	r := q.room
	p, err := parsePast(r.name, cmd)
	if err != nil && classify(err) == refused {
		r.hub.report(&LostError{Room: r.name, Err: err})
		r.hub.after(refusedWait, func() { _ = r.hub.querySenders[r.bucket].add(&request{place: r.place, op: opQuery, query: q}) })
		return nil
	}
	if err != nil {
		return err
	}
	for i, e := range p.entries {
		p.entries[i].msg = r.hub.form(e)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	o.readPending = false
	r.resume(p)
	switch {
	case o.phase == catchingUp && o.last.Compare(p.end) >= 0:
		o.phase = live
		r.checkJoins()
	case o.phase != unsubscribed:
		r.read()
	}
	return nil
}

// resume delivers what the room has missed, from what was read, which begins with the last entry
// that the room had. If that is not there it may tell of a gap. r.mu is held.
func (r *room) resume(p past) {
	o := &r.order
	g := &Gap{r.name, o.last, p.end, "Redis has lost them, or the room was deleted"}
	if len(p.entries) == 0 {
		o.last = p.end
		r.renew()
		r.gap(g)
		return
	}
	g.To = p.entries[0].Position
	if g.To.Compare(o.last) > 0 && !g.To.follows(o.last) {
		if g.To.Epoch == o.last.Epoch {
			g.Why = "Redis has trimmed them"
		}
		r.gap(g)
	}
	for _, e := range p.entries {
		if e.Position.Compare(o.last) > 0 {
			r.accept(e)
			r.hub.count(&r.hub.stats.CaughtUp)
		}
	}
}
