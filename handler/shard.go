package handler

import "github.com/loopwheel/loopwheel/loop"

// A shard is the members of a group on one loop. Only that loop changes it, and holds the group's
// lock meanwhile; so it may read it without.
type shard struct {
	loop    *loop.Loop
	members []member
	place   map[*loop.Conn]int // in members
}

type member struct {
	c    *loop.Conn
	seen uint64 // up to here it got everything, or was not concerned
}

// A broadcast is what its tasks on all loops share.
type broadcast struct {
	msg    []byte
	except loop.Ref
}

func (s *shard) add(c *loop.Conn, seq uint64) {
	s.place[c] = len(s.members)
	s.members = append(s.members, member{c: c, seen: seq})
}

// remove reports whether c was a member. The last member moves to its place.
func (s *shard) remove(c *loop.Conn) bool {
	i, ok := s.place[c]
	if !ok {
		return false
	}
	delete(s.place, c)
	last := len(s.members) - 1
	if i != last {
		s.members[i] = s.members[last]
		s.place[s.members[i].c] = i
	}
	s.members[last] = member{}
	s.members = s.members[:last]
	return true
}

// visit calls f for each member that had joined by seq. A panic closes the connection it was for,
// and the others are visited all the same.
//
// f may make members leave. So it goes from the last to the first: what remove moves to an earlier
// place was visited already, and seen tells that.
func (s *shard) visit(seq uint64, f func(c *loop.Conn)) {
	i := len(s.members)
	var current *loop.Conn
	rest := func() {
		for i > 0 {
			i--
			if i >= len(s.members) || s.members[i].seen >= seq {
				continue
			}
			s.members[i].seen = seq
			current = s.members[i].c
			f(current)
		}
	}
	for {
		err := s.loop.Try(rest)
		if err == nil {
			return
		}
		current.CloseWithError(err)
	}
}

// deliver sends b to the members.
func (s *shard) deliver(b *broadcast, seq uint64) {
	e := &locals.Get(s.loop).encoder
	e.begin(b.msg)
	s.visit(seq, func(c *loop.Conn) {
		if c.Ref() != b.except {
			e.send(c)
		}
	})
	e.end()
}
