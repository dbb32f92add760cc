package redisgroup

import "github.com/loopwheel/loopwheel/loop"

// Bind assigns c to a user: it gets what is sent to the user, and the user is present in the
// ordered rooms that c is a member of. Binding c to another user changes its rooms, too; "" ends
// the binding. It must be called on c's loop, and ends automatically when c closes.
//
// The errors are ErrClosed, of the Hub, loop.ErrClosed, and a *SizeError.
func (h *Hub) Bind(c *loop.Conn, user string) error {
	if user != "" {
		if err := checkName("user name", user); err != nil {
			return err
		}
	}
	m := h.join(c)
	if m == nil {
		return loop.ErrClosed
	}
	if m.user == user {
		return nil
	}
	if user != "" && !h.messagesOf(user).Join(c) {
		return ErrClosed
	}
	for r, j := range m.rooms {
		if j == nil { // who comes is there before who goes: no room is empty between
			r.change(user, 1)
			r.change(m.user, -1)
		}
	}
	if m.user != "" {
		h.messagesOf(m.user).Leave(c)
	}
	m.user = user
	return nil
}

// messagesOf returns the room of a user's own messages.
func (h *Hub) messagesOf(user string) *handle {
	return &handle{h, h.keys.place(userRoom, user)}
}

// User returns the user that c is bound to, or "". It must be called on c's loop.
func (h *Hub) User(c *loop.Conn) string {
	if m := (*h.members.Get(c.Loop()))[c]; m != nil {
		return m.user
	}
	return ""
}

// Send sends msg to all connections of a user, on all machines, as Group.Broadcast does: a user who
// is not connected does not get it.
func (h *Hub) Send(user string, msg []byte) error { return h.sayTo(user, plainMessage, msg) }

// Kick closes all connections of a user, on all machines, with a *KickError. Any goroutine may call
// it, and it does not block. The errors are Send's.
func (h *Hub) Kick(user, reason string) error { return h.sayTo(user, plainKick, []byte(reason)) }

func (h *Hub) sayTo(user string, kind byte, data []byte) error {
	if err := checkName("user name", user); err != nil {
		return err
	}
	return h.sayPlain(h.keys.place(userRoom, user), kind, loop.Ref{}, data)
}
