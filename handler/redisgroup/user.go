package redisgroup

import "github.com/loopwheel/loopwheel/loop"

// Bind says that c is a user's: it gets what is sent to the user, and the user is present in the
// ordered rooms that c is a member of. A user may have any number of connections, on any machine.
// Binding c to another user moves it, in its rooms, too; "" ends it. It must be called on c's loop,
// and ends by itself when c closes.
//
// The errors are ErrClosed, of the Hub, loop.ErrClosed, and a *SizeError.
func (h *Hub) Bind(c *loop.Conn, user string) error {
	if user != "" {
		if err := checkName("user name", user); err != nil {
			return err
		}
	}
	m := membershipOf(c)
	if m.closed(c) {
		return loop.ErrClosed
	}
	old := m.users[h]
	if old != nil && old.name == user || old == nil && user == "" {
		return nil
	}
	var b *binding
	if user != "" {
		r := h.hold(h.keys.place(userRoom, user))
		if r == nil {
			return ErrClosed
		}
		b = &binding{user, r}
		r.local.Join(c)
	}
	h.rebind(c, m, old, b)
	return nil
}

// rebind moves c from one user to another. Who comes is there before who goes, so that rooms are
// not empty between.
func (h *Hub) rebind(c *loop.Conn, m *membership, old, b *binding) {
	for r, j := range m.rooms {
		if r.hub != h || j != nil {
			continue
		}
		if b != nil {
			r.change(b.name, 1)
		}
		if old != nil {
			r.change(old.name, -1)
		}
	}
	if old != nil {
		old.room.local.Leave(c)
		h.release(old.room)
		delete(m.users, h)
	}
	if b != nil {
		if m.users == nil {
			m.users = make(map[*Hub]*binding)
		}
		m.users[h] = b
	}
}

// User returns the user that c is bound to, or "". It must be called on c's loop.
func (h *Hub) User(c *loop.Conn) string {
	if m := (*members.Get(c.Loop()))[c]; m != nil && m.users[h] != nil {
		return m.users[h].name
	}
	return ""
}

// Send sends msg to all connections of a user, on all machines. Any goroutine may call it, and it
// does not wait. It is as Group.Broadcast in all else: a user who is not connected anywhere does
// not get it.
func (h *Hub) Send(user string, msg []byte) error {
	if err := checkName("user name", user); err != nil {
		return err
	}
	return h.sayPlain(h.keys.place(userRoom, user), plainMessage, loop.Ref{}, msg)
}

// Kick closes all connections of a user, on all machines, with a *KickError. Any goroutine may call
// it, and it does not wait. The errors are Send's.
func (h *Hub) Kick(user, reason string) error {
	if err := checkName("user name", user); err != nil {
		return err
	}
	return h.sayPlain(h.keys.place(userRoom, user), plainKick, loop.Ref{}, []byte(reason))
}
