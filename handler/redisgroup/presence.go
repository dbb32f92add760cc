package redisgroup

import "errors"

// A presence is a user's in an ordered room. It is kept until Redis knows that the user is gone.
type presence struct {
	conns int  // the user's, in this process
	told  bool // Redis may have the user as here
}

// change counts a user's connections in this process, one more or one less. Only the first and the
// last are told to Redis, in order with what is published.
func (r *room) change(user string, n int) {
	if r.kind != orderedRoom || user == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.presenceOf(user)
	if p.conns += n; p.conns == 0 || p.conns == n {
		r.tell(user, p)
	}
}

// presenceOf returns a user's. r.mu is held.
func (r *room) presenceOf(user string) *presence {
	p := r.users[user]
	if p == nil {
		if r.users == nil {
			r.users = make(map[string]*presence)
		}
		p = &presence{}
		r.users[user] = p
	}
	return p
}

// tell has Redis told whether a user is here; if too much waits, after a while. r.mu is held.
func (r *room) tell(user string, p *presence) {
	if p.conns == 0 && !p.told {
		delete(r.users, user)
		return
	}
	o := &outgoing{place: r.place, op: opUser, seq: r.hub.seq.Add(1), data: []byte(user)}
	o.here, o.bounded = p.conns > 0, p.conns > 0
	if errors.Is(r.hub.publish(o), ErrQueueFull) {
		r.tellLater()
	} else {
		p.told = true
	}
}

// tellLater has Redis told after a while who is here and who is not. r.mu is held.
func (r *room) tellLater() {
	if r.untold {
		return
	}
	r.untold = true
	held := r.hub.hold(r.place)
	if held == nil { // the Hub is closed
		return
	}
	r.hub.after(refusedWait, func() {
		r.mu.Lock()
		r.untold = false
		r.reassert()
		r.mu.Unlock()
		r.hub.release(held)
	})
}

// reassert tells Redis of all users: it may have lost that. Users that it knows are no event. r.mu
// is held.
func (r *room) reassert() {
	for user, p := range r.users {
		r.tell(user, p)
	}
}

// told is called when Redis has taken that a user is here, or gone.
func (h *Hub) told(o *outgoing) {
	if r := h.find(o.channel); r != nil && !o.here {
		r.mu.Lock()
		defer r.mu.Unlock()
		if p := r.users[string(o.data)]; p != nil && p.conns == 0 {
			delete(r.users, string(o.data))
		}
	}
}

// untold is called when Redis has refused that.
func (h *Hub) untold(o *outgoing) {
	if r := h.hold(o.place); r != nil {
		r.mu.Lock()
		r.presenceOf(string(o.data)).told = true
		r.tellLater()
		r.mu.Unlock()
		h.release(r)
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
