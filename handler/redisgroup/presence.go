package redisgroup

import (
	"errors"
	"sync"
)

// A presence is a user's in an ordered room.
type presence struct {
	conns int  // the user's, in this process
	here  bool // what was queued for Redis last
	later bool // Redis is told after a while, if it has to be then
}

// presences are those of a Hub.
type presences struct {
	mu  sync.Mutex                      // taken after a room's
	all map[string]map[string]*presence // by channel, and user
}

// change counts a user's connections in this process, one more or one less. Only the first and the
// last are told to Redis, in order with what is published.
func (r *room) change(user string, n int) {
	if r.kind != orderedRoom || user == "" {
		return
	}
	r.hub.present.mu.Lock()
	defer r.hub.present.mu.Unlock()
	p := r.hub.presence(r.place, user)
	p.conns += n
	r.hub.tell(r.place, user, p)
}

// presence returns a user's. h.present.mu is held until tell has been called.
func (h *Hub) presence(at place, user string) *presence {
	users := h.present.all[at.channel]
	if users == nil {
		users = make(map[string]*presence)
		h.present.all[at.channel] = users
	}
	if users[user] == nil {
		users[user] = &presence{}
	}
	return users[user]
}

// tell queues for Redis whether a user is here, if that is news. Who is gone is queued only after
// one who has come, and so is bounded by Config.MaxQueue, too. h.present.mu is held.
func (h *Hub) tell(at place, user string, p *presence) {
	if here := p.conns > 0; here != p.here {
		o := &outgoing{place: at, op: opUser, seq: h.seq.Add(1), data: []byte(user), here: here, bounded: here}
		if errors.Is(h.publish(o), ErrQueueFull) {
			h.tellLater(at, user, p)
			return
		}
		p.here = here
	}
	if p.conns > 0 || p.later {
		return
	}
	delete(h.present.all[at.channel], user)
	if len(h.present.all[at.channel]) == 0 {
		delete(h.present.all, at.channel)
	}
}

// tellLater calls tell after a while. h.present.mu is held.
func (h *Hub) tellLater(at place, user string, p *presence) {
	if p.later {
		return
	}
	p.later = true
	h.after(refusedWait, func() {
		h.present.mu.Lock()
		defer h.present.mu.Unlock()
		p.later = false
		h.tell(at, user, p)
	})
}

// untold is called when Redis has refused what o tells of a user.
func (h *Hub) untold(o *outgoing) {
	h.present.mu.Lock()
	defer h.present.mu.Unlock()
	p := h.presence(o.place, string(o.data))
	p.here = !o.here
	h.tellLater(o.place, string(o.data), p)
}

// reassert tells Redis of all users in a room: it may have lost that. Users that it knows are no
// event.
func (h *Hub) reassert(at place) {
	h.present.mu.Lock()
	defer h.present.mu.Unlock()
	for user, p := range h.present.all[at.channel] {
		p.here = p.conns == 0 // whatever was told is told again
		h.tell(at, user, p)
	}
}

// reassertAll does it for all rooms.
func (h *Hub) reassertAll() {
	for _, r := range h.all() {
		h.reassert(r.place)
	}
}
