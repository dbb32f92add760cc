package redisgroup

import (
	"errors"
	"fmt"
)

// A presence is a user's in an ordered room.
type presence struct {
	conns int  // the user's, in this process
	here  bool // what was queued for Redis last, and not refused
}

// change counts a user's connections in this process, one more or one less. Only the first and the
// last are sent to Redis, in order with what is published.
func (r *room) change(user string, n int) {
	if r.kind != orderedRoom || user == "" {
		return
	}
	h := r.hub
	h.presentMu.Lock()
	defer h.presentMu.Unlock()
	h.presence(r.place, user).conns += n
	h.publishPresence(r.place, user)
}

// presence returns a user's. h.presentMu is held until publishPresence has been called.
func (h *Hub) presence(at place, user string) *presence {
	users := h.present[at.channel]
	if users == nil {
		users = make(map[string]*presence)
		h.present[at.channel] = users
	}
	if users[user] == nil {
		users[user] = &presence{}
	}
	return users[user]
}

// publishPresence queues for Redis whether a user is here, if that is news. A departure is only queued behind
// an arrival, and so Config.MaxQueue bounds it, too. h.presentMu is held.
func (h *Hub) publishPresence(at place, user string) {
	p := h.presence(at, user)
	if here := p.conns > 0; here != p.here {
		o := &request{place: at, op: opUser, seq: h.seq.Add(1), data: []byte(user)}
		o.here, o.bounded = here, here
		if errors.Is(h.publish(o), ErrQueueFull) {
			h.publishPresenceLater(at, user)
		} else {
			p.here = here
		}
	}
	if p.conns == 0 && !p.here {
		if delete(h.present[at.channel], user); len(h.present[at.channel]) == 0 {
			delete(h.present, at.channel)
		}
	}
}

// publishPresenceLater calls publishPresence after a while. h.presentMu is held.
func (h *Hub) publishPresenceLater(at place, user string) {
	_ = h.timers.Set(fmt.Sprintf("tell %q %q", at.channel, user), refusedWait, func() {
		h.presentMu.Lock()
		defer h.presentMu.Unlock()
		h.publishPresence(at, user)
	})
}

// presenceRefused is called when Redis has refused what o tells of a user.
func (h *Hub) presenceRefused(o *request) {
	h.presentMu.Lock()
	defer h.presentMu.Unlock()
	h.presence(o.place, string(o.data)).here = !o.here
	h.publishPresenceLater(o.place, string(o.data))
}

// republishPresence tells Redis of all users in a room: it may have lost that. Users that it knows are no
// event.
func (h *Hub) republishPresence(at place) {
	h.presentMu.Lock()
	defer h.presentMu.Unlock()
	for user, p := range h.present[at.channel] {
		p.here = p.conns == 0 // whatever was sent is sent again
		h.publishPresence(at, user)
	}
}
