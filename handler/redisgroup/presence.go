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
		r.tell(opLeft, user, false)
	case before == 0:
		r.tell(opCame, user, false)
	}
}

// tell has Redis told about a user, perhaps again. r.mu is held.
func (r *room) tell(what op, user string, again bool) {
	_ = r.hub.publishing.add(r.hub.presence(r.place, what, user, again)) // fails once the Hub is closed
}

func (h *Hub) presence(p place, what op, user string, again bool) *outgoing {
	return &outgoing{place: p, op: what, seq: h.seq.Add(1), data: []byte(user), retold: again}
}

// tellAgain tells Redis what it has refused: whether a user is here by now.
func (h *Hub) tellAgain(o *outgoing) {
	again := h.presence(o.place, opLeft, string(o.data), true)
	again.refusals = o.refusals
	h.mu.RLock()
	defer h.mu.RUnlock()
	if r := h.rooms[o.channel]; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.users[string(o.data)] > 0 {
			again.op = opCame
		}
	}
	_ = h.publishing.add(again)
}

// reassert tells Redis who is here, all of them: it may have lost that. Who is known there already
// is no event. r.mu is held.
func (r *room) reassert() {
	for user := range r.users {
		r.tell(opCame, user, true)
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
