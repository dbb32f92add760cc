package redisgroup

import "github.com/loopwheel/loopwheel/loop"

// Bind binds c to a user: c gets the messages sent to the user, and the user is present in the
// ordered rooms of which c is a member. Binding c to another user replaces the user, also in c's
// rooms. "" removes the binding. So does closing c. Bind must be called on c's loop.
//
// The errors are ErrClosed, if the Hub is closed, loop.ErrClosed, and a *SizeError.
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
		if j == nil { // arrivals come before departures, so that no room is empty in between
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

// messagesOf returns the room for a user's own messages.
func (h *Hub) messagesOf(user string) *handle {
	return &handle{h, h.keys.place(userRoom, user)}
}

// User returns the user to which c is bound, or "". It must be called on c's loop.
func (h *Hub) User(c *loop.Conn) string {
	if m := (*h.members.Get(c.Loop()))[c]; m != nil {
		return m.user
	}
	return ""
}

// Send sends msg to all connections of a user, in all processes, as Group.Broadcast does. A user
// who is not connected does not get it.
func (h *Hub) Send(user string, msg []byte) error { return h.sayTo(user, plainMessage, msg) }

// Kick closes all connections of a user, in all processes, with a *KickError. Any goroutine may
// call it. It does not wait. The errors are those of Send.
func (h *Hub) Kick(user, reason string) error { return h.sayTo(user, plainKick, []byte(reason)) }

func (h *Hub) sayTo(user string, kind byte, data []byte) error {
	if err := checkName("user name", user); err != nil {
		return err
	}
	return h.sayPlain(h.keys.place(userRoom, user), kind, loop.Ref{}, data)
}
