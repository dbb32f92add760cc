package redisgroup

import (
	"context"
	"errors"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// in is the access of this package to internals of package loop.
var in = inside.Take[inside.ForHandler[*loop.Conn, *loop.Loop, loop.Ref, loop.Dialer]]()

// A membership is the set of rooms of one Hub that a connection has joined. It belongs to the
// connection's loop.
type membership struct {
	rooms map[*room]*joining // nil once joined; includes the room of the user's own messages
	user  string             // the user to which the connection is bound, or ""

	holds map[claimKey]*hold // of ClaimFor, until ReleaseFor
}

type claimKey struct{ name, owner string }

// A hold is a connection's hold on a name. When it ends, its pending claims end, too: a late grant
// is given back.
type hold struct {
	claims int             // granted or pending
	ctx    context.Context // done when the hold has ended
	end    context.CancelFunc
}

// holdOn returns the hold on a name, with one claim more.
func (m *membership) holdOn(key claimKey) *hold {
	if m.holds[key] == nil {
		ctx, end := context.WithCancel(context.Background())
		m.holds[key] = &hold{ctx: ctx, end: end}
	}
	m.holds[key].claims++
	return m.holds[key]
}

// unclaim removes one of several claims. The hold may have ended, and another have begun.
func (m *membership) unclaim(key claimKey, ho *hold) {
	if ho.claims--; ho.claims == 0 && m.holds[key] == ho {
		m.endHold(key)
	}
}

// endHold ends the hold on a name, if there is one.
func (m *membership) endHold(key claimKey) {
	if ho := m.holds[key]; ho != nil {
		delete(m.holds, key)
		ho.end()
	}
}

// A memberships maps the connections of a loop to their membership.
type memberships map[*loop.Conn]*membership

// join returns c's membership, and adds the hook that ends it when c closes. It returns nil if c is
// closed.
func (h *Hub) join(c *loop.Conn) *membership {
	all := *h.members.Get(c.Loop())
	if all[c] == nil {
		in.Pin(c, false) // the memberships belong to the loop
		all[c] = &membership{rooms: make(map[*room]*joining), holds: make(map[claimKey]*hold)}
		c.AfterClose(func(err error) { h.leaveAll(c, err) }) // runs at once if c is already closed
	}
	return all[c]
}

// movedLinger is how long a connection's user and names stay here after it has moved to another
// process. By then the other process has them, so that they are never absent.
const movedLinger = time.Second

func (h *Hub) leaveAll(c *loop.Conn, err error) {
	all := *h.members.Get(c.Loop())
	m := all[c]
	delete(all, c)
	var user []*room // rooms of the user
	for r, j := range m.rooms {
		if j == nil {
			r.local.Leave(c)
			user = append(user, r)
		} else {
			r.leave(c, m, j)
		}
	}
	ref := c.Ref()
	forget := func() {
		for _, r := range user {
			r.change(m.user, -1)
			h.release(r)
		}
		for key, ho := range m.holds {
			ho.end()
			h.renewer.leave(key.name, key.owner, ref)
		}
	}
	if !errors.Is(err, handover.ErrMoved) {
		forget()
		return
	}
	h.lingering.Add(1)
	h.after(movedLinger, func() {
		forget()
		h.lingering.Add(-1)
	})
}

// A handle is the common part of Group and Ordered: a room, by its place.
type handle struct {
	hub *Hub
	at  place
}

// Name returns the room's name.
func (g *handle) Name() string { return g.at.name }

// Join makes c a member until it leaves or has closed, and reports whether it was not one before;
// false also if c or the Hub is closed. It must be called on c's loop; Accept may call it, too.
//
// The subscription is made in the background. Until it is active, c misses what other processes
// broadcast in a plain room. In an ordered room it misses nothing after the entry that this process
// has reached when c joins.
func (g *handle) Join(c *loop.Conn) bool {
	m, r := g.enter(c)
	if r == nil {
		return false
	}
	m.rooms[r] = nil
	r.local.Join(c)
	r.change(m.user, 1)
	return true
}

// enter acquires the room for c. It returns nil if c is a member or joining already, or if c or the
// Hub is closed.
func (g *handle) enter(c *loop.Conn) (*membership, *room) {
	m := g.hub.join(c)
	if m == nil {
		return nil, nil
	}
	r := g.hub.acquire(g.at)
	if _, isIn := m.rooms[r]; isIn {
		g.hub.release(r)
		return nil, nil
	}
	return m, r
}

// Leave ends c's membership, or its joining, and reports whether there was one. It must be called
// on c's loop.
func (g *handle) Leave(c *loop.Conn) bool {
	m, r := (*g.hub.members.Get(c.Loop()))[c], g.hub.find(g.at.channel)
	if m == nil {
		return false
	}
	j, isIn := m.rooms[r]
	if isIn {
		delete(m.rooms, r)
		r.leave(c, m, j)
	}
	return isIn
}

// leave is the common part of all ways to leave.
func (r *room) leave(c *loop.Conn, m *membership, j *joining) {
	if j != nil {
		r.mu.Lock()
		r.order.end(j)
		r.mu.Unlock()
	} else {
		r.local.Leave(c)
		r.change(m.user, -1)
	}
	r.hub.release(r)
}

// Has reports whether c is a member. It must be called on c's loop.
func (g *handle) Has(c *loop.Conn) bool {
	r := g.hub.find(g.at.channel)
	return r != nil && r.local.Has(c)
}

// Len returns the number of members in this process. Any goroutine may call it.
func (g *handle) Len() int {
	if r := g.hub.find(g.at.channel); r != nil {
		return r.local.Len()
	}
	return 0
}

// Each calls f for each member in this process, as handler.Group.Each does; in an ordered room it
// is in order with the messages.
func (g *handle) Each(f func(c *loop.Conn)) error {
	if f == nil {
		panic("redisgroup: Each with a nil func")
	}
	if r := g.hub.find(g.at.channel); r != nil {
		return r.local.Each(f)
	}
	return nil
}
