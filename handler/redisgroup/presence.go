package redisgroup

// present counts the user of a connection that has become a member, 1, or is one no more, -1.
func (r *room) present(m *membership, n int) {
	if b := m.users[r.hub]; b != nil {
		r.change(b.name, n)
	}
}

// change counts a user's connections in this process. Only the first and the last are told to
// Redis, in order with what is published.
func (r *room) change(user string, n int) {
	if r.kind != orderedRoom {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == nil {
		r.users = make(map[string]int)
	}
	before := r.users[user]
	r.users[user] += n
	switch {
	case r.users[user] == 0:
		if delete(r.users, user); len(r.users) == 0 {
			r.users = nil
		}
		r.tell(user, false, false)
	case before == 0:
		r.tell(user, true, false)
	}
}

// tell has Redis told whether a user is here, perhaps again. r.mu is held.
func (r *room) tell(user string, here, again bool) {
	o := &outgoing{place: r.place, op: opUser, seq: r.hub.seq.Add(1), data: []byte(user), here: here, retold: again}
	_ = r.hub.publish(o) // fails once the Hub is closed
}

// tellAgain tells Redis what it has refused: whether a user is here by now, or that a room is there.
func (h *Hub) tellAgain(o *outgoing) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	r := h.rooms[o.channel]
	switch {
	case o.op == opUser:
		o.here, o.retold = false, true
		if r != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			o.here = r.users[string(o.data)] > 0
		}
	case r != o.room:
		return
	}
	_ = h.publish(o) // fails once the Hub is closed
}

// reassert tells Redis who is here, all of them: it may have lost that. Who is known there already
// is no event. r.mu is held.
func (r *room) reassert() {
	for user := range r.users {
		r.tell(user, true, true)
	}
}

// reassertAll does it for all rooms.
func (h *Hub) reassertAll() {
	for _, r := range h.all() {
		r.mu.Lock()
		r.reassert()
		r.mu.Unlock()
	}
}
