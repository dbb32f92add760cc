package main

import "slices"

// group is a shared subscription: of each message that its filter selects one member gets a copy. It
// belongs to the shard that its whole filter, with $share, hashes to, which knows all members.
type group struct {
	key     string // $share/name/filter
	node    *node
	members []*member
	next    int
}

// member is a session of a group, which may be on any shard.
type member struct {
	id       string // of the client
	shard    int
	online   bool
	filter   string // the group's key
	options  options
	keepFlag bool
}

func (g *group) find(id string) int {
	return slices.IndexFunc(g.members, func(m *member) bool { return m.id == id })
}

// choose returns the next member in turn. One whose client is connected goes first.
func (g *group) choose() *member {
	for range g.members {
		if m := g.turn(); m.online {
			return m
		}
	}
	if len(g.members) == 0 {
		return nil
	}
	return g.turn()
}

func (g *group) turn() *member {
	m := g.members[g.next%len(g.members)]
	g.next++
	return m
}

// join adds a member to a group, or changes it: its options, its shard, whether it is connected.
func (sh *shard) join(m member) {
	g := sh.groups[m.filter]
	if g == nil {
		_, topics := splitShared(m.filter)
		g = &group{key: m.filter, node: sh.subs.at(topics)}
		g.node.groups = append(g.node.groups, g)
		sh.groups[m.filter] = g
		sh.budget.add(groupCost + len(g.key)) // which is the text of a member that may leave
	}
	if i := g.find(m.id); i >= 0 {
		g.members[i] = &m
		return
	}
	g.members = append(g.members, &m)
}

// leave removes a member, unless it has joined again from another shard.
func (sh *shard) leave(key, id string, from int) {
	g := sh.groups[key]
	if g == nil {
		return
	}
	if i := g.find(id); i >= 0 && g.members[i].shard == from {
		g.members = slices.Delete(g.members, i, i+1)
		if len(g.members) < cap(g.members)/4 {
			g.members = slices.Clone(g.members)
		}
	}
	if len(g.members) == 0 {
		delete(sh.groups, key)
		sh.budget.add(-groupCost - len(key))
		g.node.groups = slices.DeleteFunc(g.node.groups, func(other *group) bool { return other == g })
		sh.subs.prune(g.node)
	}
}

// deliverTo delivers a message to a member of a group on this shard. If the session has left, the
// group chooses again.
func (sh *shard) deliverTo(to *member, m *message) {
	s := sh.sessions[to.id]
	if s == nil || s.subs[to.filter] == nil {
		key := to.filter
		sh.at(sh.b.home(key), func(owner *shard) {
			owner.leave(key, to.id, sh.index)
			if g := owner.groups[key]; g != nil {
				if next := g.choose(); next != nil {
					owner.at(next.shard, func(other *shard) { other.deliverTo(next, m) })
				}
			}
		})
		return
	}
	sh.send(s, m, options{qos: min(m.qos, to.options.qos), retain: m.retain && to.keepFlag, id: to.options.id}, nil)
}

// tellGroups says to the groups of a session whether its client is connected.
func (sh *shard) tellGroups(s *session) {
	for _, sub := range s.subs {
		if sub.groupName != "" {
			sh.insert(sub)
		}
	}
}
