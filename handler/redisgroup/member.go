package redisgroup

import "github.com/loopwheel/loopwheel/loop"

// members is, on each loop, what its connections are members of.
var members = loop.NewLocal(func(*loop.Loop) map[*loop.Conn]*membership {
	return make(map[*loop.Conn]*membership)
})

// A membership is what a connection is a member of. It belongs to the connection's loop.
type membership struct {
	rooms map[*room]*joining // nil for those it is in already
	users map[*Hub]*binding
}

// A binding is the user that a connection has in a Hub.
type binding struct {
	name string
	room *room // of the user's own messages
}

// membershipOf returns c's, with the hook that ends it when c has closed.
func membershipOf(c *loop.Conn) *membership {
	all := *members.Get(c.Loop())
	m := all[c]
	if m == nil {
		m = &membership{rooms: make(map[*room]*joining)}
		all[c] = m
		c.AfterClose(func(error) { leaveAll(c) }) // at once if c is closed already
	}
	return m
}

func leaveAll(c *loop.Conn) {
	all := *members.Get(c.Loop())
	m := all[c]
	delete(all, c)
	for r, j := range m.rooms {
		r.leave(c, m, j)
	}
	for _, b := range m.users {
		b.room.leave(c, m, nil)
	}
}

// closed reports whether c closed before it could become a member: then its membership is over.
func (m *membership) closed(c *loop.Conn) bool { return (*members.Get(c.Loop()))[c] != m }

// join makes c a member of the room at p.
func join(h *Hub, p place, c *loop.Conn) (*room, bool) {
	m := membershipOf(c)
	if m.closed(c) {
		return nil, false
	}
	r := h.hold(p)
	if r == nil {
		return nil, false
	}
	if _, in := m.rooms[r]; in {
		h.release(r)
		return r, false
	}
	m.rooms[r] = nil
	r.local.Join(c)
	r.come(m)
	return r, true
}

// leave ends c's membership of the room at p, or its joining.
func leave(h *Hub, p place, c *loop.Conn) bool {
	m := (*members.Get(c.Loop()))[c]
	r := h.find(p.channel)
	if m == nil || r == nil {
		return false
	}
	j, in := m.rooms[r]
	if in {
		delete(m.rooms, r)
		r.leave(c, m, j)
	}
	return in
}

// leave is what is common to all ways to leave.
func (r *room) leave(c *loop.Conn, m *membership, j *joining) {
	if j != nil {
		r.giveUp(j)
	} else {
		r.local.Leave(c)
		r.depart(m)
	}
	r.hub.release(r)
}

func has(h *Hub, p place, c *loop.Conn) bool {
	m := (*members.Get(c.Loop()))[c]
	r := h.find(p.channel)
	if m == nil || r == nil {
		return false
	}
	j, in := m.rooms[r]
	return in && j == nil
}

func localLen(h *Hub, p place) int {
	r := h.find(p.channel)
	if r == nil {
		return 0
	}
	return r.local.Len()
}

func each(h *Hub, p place, f func(c *loop.Conn)) error {
	if f == nil {
		panic("redisgroup: Each with a nil func")
	}
	r := h.find(p.channel)
	if r == nil {
		return nil
	}
	return r.local.Each(f)
}
