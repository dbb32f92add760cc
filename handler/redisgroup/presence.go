package redisgroup

import (
	"errors"
	"fmt"
)

// A presence is the presence of a user in an ordered room.
type presence struct {
	conns int  // the user's connections in this process
	here  bool // what was last queued for Redis and not refused
}

// change adds n, 1 or -1, to a user's connections in this process. Only the first and the last are
// sent to Redis, in order with published messages.
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

// presence returns a user's presence. h.presentMu is held until publishPresence has been called.
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

// publishPresence queues for Redis whether a user is present, if that has changed. A departure is
// queued only after an arrival, so Config.MaxQueue bounds departures, too. h.presentMu is held.
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

// publishPresenceLater calls publishPresence after a delay. h.presentMu is held.
func (h *Hub) publishPresenceLater(at place, user string) {
	_ = h.timers.Set(fmt.Sprintf("tell %q %q", at.channel, user), refusedWait, func() {
		h.presentMu.Lock()
		defer h.presentMu.Unlock()
		h.publishPresence(at, user)
	})
}

// presenceRefused is called when Redis has refused a change of presence.
func (h *Hub) presenceRefused(o *request) {
	h.presentMu.Lock()
	defer h.presentMu.Unlock()
	h.presence(o.place, string(o.data)).here = !o.here
	h.publishPresenceLater(o.place, string(o.data))
}

// republishPresence sends all users in a room to Redis, which may have lost them. Users that Redis
// knows cause no event.
func (h *Hub) republishPresence(at place) {
	h.presentMu.Lock()
	defer h.presentMu.Unlock()
	for user, p := range h.present[at.channel] {
		p.here = p.conns == 0 // makes publishPresence send the state again
		h.publishPresence(at, user)
	}
}
