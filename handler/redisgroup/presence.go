package redisgroup

// come is called when a connection has become a member: its user is here.
func (r *room) come(m *membership) { r.present(m, 1) }

// depart is called when one is a member no more.
func (r *room) depart(m *membership) { r.present(m, -1) }

func (r *room) present(m *membership, n int) {
	if b := m.users[r.hub]; b != nil && r.kind == orderedRoom {
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
		r.tell(opGo, user, false)
	case before == 0:
		r.tell(opCome, user, false)
	}
}

// tell has Redis told about a user, perhaps again. r.mu is held.
func (r *room) tell(what op, user string, again bool) {
	o := &outgoing{place: r.place, op: what, seq: r.hub.seq.Add(1), data: []byte(user), retold: again}
	_ = r.hub.servers.publish(o)
}

// reassert tells Redis who is here, all of them: it may have lost that. Who is known there already
// is no event. r.mu is held.
func (r *room) reassert() {
	for user := range r.users {
		r.tell(opCome, user, true)
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

// presenceArgs are those of presence.lua for a segment, all of whose items are of one room.
func (l *link) presenceArgs(s *segment) ([]string, []any) {
	k, node := l.hub.keys, l.hub.keeper.name()
	at := s.items[0].place
	keys := []string{
		k.fence(at.bucket, l.hub.node), k.members(at, node), k.users(at), at.key, k.joined(at.bucket, node), k.tomb(at.bucket, node),
	}
	if !l.hub.servers.sharded() {
		keys = append(keys, k.nodes())
	}
	args := append(l.common(s), at.name, node)
	for _, o := range s.items {
		sign := "+"
		if o.op == opGo {
			sign = "-"
		}
		args = append(args, sign, o.data, l.from(o))
	}
	s.node = node
	return keys, args
}
