package redisgroup

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/onredis"
	"github.com/loopwheel/loopwheel/loop"
)

// An order is the position of an ordered room in this process. The room's lock guards it, and is
// held while a broadcast is posted, so that local members get messages in the order of the stream.
//
// The room subscribes first. Then it reads the entries after the last one that it has, including
// that one: if it is in the answer, nothing is missing. From then on it delivers the entry with the
// next number, drops older ones, and reads again after any other.
//
// A stream may go back because Redis was restarted with an old file, or the room was deleted. Older
// messages may then still be in the connection and seem to follow. So the room subscribes again, as
// after a lost subscription, and accepts nothing until Redis has answered. It does the same, once
// for each end of the stream, if a joining connection had or claims a later position.
type order struct {
	last        Position // of the last delivered entry; zero while unknown
	phase       phase
	readPending bool     // missing entries were requested and not answered yet
	wentBack    Position // the end of the stream that had gone back and for which the room was renewed

	roster    *roster // nil if nobody has asked for it, or if it was lost
	joins     map[*joining]struct{}
	tail      []Entry // entries delivered since the first joining
	tailBytes int
	tailFrom  Position // the position before the tail
}

// A phase determines what an ordered room does with published entries.
type phase int

const (
	unsubscribed phase = iota // published entries are dropped
	missing                   // entries are missing; those that follow the last one are accepted
	catchingUp                // like missing, but all missing entries have been requested
	live                      // nothing is missing
)

// take processes a published entry.
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
		o.readPending = true // also if that fails, because the Hub is closed then
		_ = r.hub.querySenders[r.bucket].add(&request{place: r.place, op: opQuery, query: catchUp{r}})
	}
}

// confirmed is called when the subscription is active. r.mu is held.
func (r *room) confirmed() {
	if r.kind == orderedRoom && r.order.phase == unsubscribed {
		r.read()
	}
}

// renew subscribes to the room again and waits for the answer. r.mu is held.
func (r *room) renew() {
	r.order.phase = unsubscribed
	r.hub.subscribers[r.bucket].touch(r.channel, true)
}

// peeked processes the end of the stream from before anything published since the room was
// acquired.
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

// deliver broadcasts in this process. A loop with a full mailbox gets the gap later. r.mu is held.
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

// each calls f for the members in this process. On a full mailbox it retries until f is queued.
func (r *room) each(f func(c *loop.Conn)) { r.insist(r.local.Each(f), f) }

// insist calls f for the members that err reports as unreached because their loops' mailboxes were
// full, as soon as these accept functions again.
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

// form calls Config.Form, which is user code: no lock is held.
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

// gap reports to all members that entries are missing. Joining connections read again. r.mu is
// held.
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

// A catchUp is the query for the entries that a room has missed.
type catchUp struct{ room *room }

// Limits of its answer.
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
	if o.phase == unsubscribed { // the query runs when it is subscribed
		o.readPending = false
		return nil, nil, nil
	}
	o.phase = catchingUp
	args := []any{o.last.String(), maxMissed, maxMissedBytes}
	return catchUpScript, []string{r.key}, append(args, r.hub.streamArgs()...)
}

// answered repeats the query later if Redis refuses it, and at once after other failures.
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

// resume delivers the missed entries from p, which begins with the last entry that the room had. If
// that entry is not there, it may report a gap. r.mu is held.
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
