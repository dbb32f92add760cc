package handler

import (
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	// pieceMembers is how many members a loop serves at a stretch: with a write to each about a
	// millisecond, as long as Server.TurnBudget.
	pieceMembers = 256

	// maxJobs is how many broadcasts that wait one behind the other go to a member in one write.
	maxJobs = 32
)

// A shard is the members of a group on one loop. Only that loop changes them, and holds the group's
// lock meanwhile; so it may read them without.
type shard struct {
	group   *Group
	loop    *loop.Loop
	members []member
	place   map[*loop.Conn]int // in members
	task    func()             // the method run, made once

	first, last *job // that were posted and not begun, with the group's lock

	// What is being done, which is the loop's own.
	batch []*job
	from  int // members from this one on have been visited
	along int // tasks that have nothing to do, as their jobs went along with one before
}

type member struct {
	c    *loop.Conn
	seen uint64 // up to here it got everything, or was not concerned
}

// A saying is a broadcast, or f of Each.
type saying struct {
	seq    uint64
	msg    []byte
	except loop.Ref
	each   func(c *loop.Conn) // nil: msg is sent
}

// A job is a saying on one loop. It has a task of its own in the loop's mailbox.
type job struct {
	*saying
	number uint64 // of that task
	next   *job
}

func newShard(g *Group, l *loop.Loop) *shard {
	s := &shard{group: g, loop: l, place: make(map[*loop.Conn]int)}
	s.task = s.run
	return s
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

// post posts what. The group's lock is held.
func (s *shard) post(what *saying) error {
	number, err := inside.Post(s.loop, s.task)
	if err != nil {
		return err
	}
	j := &job{saying: what, number: number}
	if s.first == nil {
		s.first = j
	} else {
		s.last.next = j
	}
	s.last = j
	return nil
}

// run is the task of each job. A large crowd is served in pieces, between which the loop looks at its
// sockets and timers, but not at what is behind in its mailbox.
func (s *shard) run() {
	if len(s.batch) == 0 && !s.begin() {
		return
	}
	s.piece()
	if s.from > 0 {
		inside.Unfinished(s.loop)
		return
	}
	s.end()
}

// begin takes the next job, and those whose tasks are directly behind its own: what a member gets of
// all these leaves in one write.
func (s *shard) begin() bool {
	if s.along > 0 {
		s.along--
		return false
	}
	s.group.mu.Lock()
	for j := s.first; j != nil && len(s.batch) < maxJobs && s.isNext(j); j = j.next {
		s.batch, s.first = append(s.batch, j), j.next
	}
	s.group.mu.Unlock()
	if len(s.batch) == 0 { // a Goexit has taken a task away: the loop ends
		return false
	}
	s.from, s.along = len(s.members), len(s.batch)-1
	for i := range s.batch {
		s.encoder(i).begin(s.batch[i].msg)
	}
	return true
}

// isNext reports whether nothing else is in the mailbox between the batch and j.
func (s *shard) isNext(j *job) bool {
	n := len(s.batch)
	return n == 0 || j.number == s.batch[n-1].number+1
}

// piece does the batch for some members.
func (s *shard) piece() {
	end := s.from
	s.from = max(0, end-pieceMembers)
	for i, j := range s.batch {
		s.visit(j.seq, s.from, end, j.visitor(s.encoder(i)))
	}
}

// visitor returns what is to be called for each member.
func (j *job) visitor(e *encoder) func(c *loop.Conn) {
	if j.each != nil {
		return j.each
	}
	return func(c *loop.Conn) {
		if c.Ref() != j.except {
			e.send(c)
		}
	}
}

// visit calls f for each member of a piece that had joined by seq. A panic closes the connection it
// was for, and the others are visited all the same.
//
// f, and whoever has the loop between two pieces, may make members join and leave. So it goes from
// the last to the first: what remove moves to an earlier place was visited already, or joined behind
// seq, and seen tells that.
func (s *shard) visit(seq uint64, from, end int, f func(c *loop.Conn)) {
	i := end
	var current *loop.Conn
	rest := func() {
		for i > from {
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

// encoder returns the loop's i-th encoder. They are for the one group whose task it runs.
func (s *shard) encoder(i int) *encoder {
	l := locals.Get(s.loop)
	for len(l.encoders) <= i {
		l.encoders = append(l.encoders, new(encoder))
	}
	return l.encoders[i]
}

// end forgets the batch, and the encoders that only a storm needs.
func (s *shard) end() {
	s.encoder(0).end()
	l := locals.Get(s.loop)
	clear(l.encoders[1:])
	l.encoders = l.encoders[:1]
	clear(s.batch)
	s.batch = s.batch[:0]
}
