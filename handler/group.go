package handler

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// A Group is a set of connections, on any number of loops, that get the same messages: a room, a
// topic, all subscribers of a price. The zero Group is empty and ready to use; it must not be
// copied.
//
// A broadcast copies the message once, crosses to each loop that has members once, and is encoded
// once per codec there, however many members there are. Members leave by themselves when they
// close. One that is slow disturbs no other: the limit of its own output closes it, or see Keep. A
// crowd is served in pieces of 256, between which the loop has time for its other connections; what
// is posted and told to it waits for the last.
//
// # Order
//
// Join, Leave, Broadcast and Each take effect in one order, which is the same for all members. If
// one call returned before the other was made, it is that one. A member gets the broadcasts that
// are made after its Join, and none after its Leave. So a room with a history, which holds one lock
// while it extends that and broadcasts, and while it copies it and joins a member, shows each
// member everything once.
//
// A broadcast never runs inline, also not for members of the caller's own loop: it keeps its place
// among all that is posted and told to a loop. A callback's messages to its own connection come
// before its broadcasts, even if it broadcast first.
type Group struct {
	// Keep is how many messages wait for a slow member, while more than 64 KiB of its output are
	// pending, or half of Server.Limits.MaxOutbound if that is less. One more has the oldest
	// dropped. What is sent to the member directly overtakes what waits. 0: none waits, and
	// Server.Limits.MaxOutbound closes who is slow. It must be set before the first Join, where a
	// negative Keep panics.
	Keep int

	mu      sync.Mutex // held while posting, which is what makes the order the same on all loops
	seq     uint64     // of the last Broadcast, Each or Join
	shards  []*shard   // of the loops that have members
	len     int
	dropped atomic.Uint64
}

// An UnreachedError says that a broadcast did not reach the members on one loop.
type UnreachedError struct {
	Loop    *loop.Loop
	Members int   // how many were not reached
	Err     error // why: loop.ErrMailboxFull or loop.ErrServerClosed
}

// Error says which loop was not reached, and why.
func (e *UnreachedError) Error() string {
	return fmt.Sprintf("handler: %d members on loop %d not reached: %v", e.Members, e.Loop.Index(), e.Err)
}

// Unwrap returns Err.
func (e *UnreachedError) Unwrap() error { return e.Err }

// Join makes c a member until it leaves or has closed, at once if that is so, and reports whether
// it was none before. It must be called on c's loop; Accept may call it, too.
func (g *Group) Join(c *loop.Conn) bool {
	onLoop(c, "handler.Group.Join")
	require(g.Keep >= 0, "Group.Keep is negative")
	state := stateOf(c)
	if state.closed {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.shard(c.Loop())
	if s == nil {
		s = &shard{group: g, loop: c.Loop(), place: make(map[*loop.Conn]int)}
		s.task = s.run
		g.shards = append(g.shards, s)
	} else if _, ok := s.place[c]; ok {
		return false
	}
	g.seq++
	g.len++
	s.place[c] = len(s.members)
	s.members = append(s.members, member{c: c, seen: g.seq})
	state.groups = append(state.groups, g)
	return true
}

// Leave ends c's membership and reports whether there was one: c gets nothing more from g, nor what
// was broadcast before but has not reached it. It must be called on c's loop, in Each's f, too.
func (g *Group) Leave(c *loop.Conn) bool {
	onLoop(c, "handler.Group.Leave")
	if !g.leave(c) {
		return false
	}
	state := stateOf(c)
	state.groups = slices.DeleteFunc(state.groups, func(other *Group) bool { return other == g })
	return true
}

func (g *Group) leave(c *loop.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.shard(c.Loop())
	if s == nil || !s.remove(c) {
		return false
	}
	g.len--
	if len(s.members) == 0 {
		g.shards = slices.DeleteFunc(g.shards, func(other *shard) bool { return other == s })
	}
	return true
}

// Has reports whether c is a member. It must be called on c's loop.
func (g *Group) Has(c *loop.Conn) bool {
	onLoop(c, "handler.Group.Has")
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.shard(c.Loop()); s != nil {
		_, ok := s.place[c]
		return ok
	}
	return false
}

// Len returns the number of members. Any goroutine may call it.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.len
}

// Dropped counts the messages that have given way by Keep. Any goroutine may call it.
func (g *Group) Dropped() uint64 { return g.dropped.Load() }

// Broadcast sends msg, as one message, to all members. Any goroutine may call it, a loop's too; msg
// is copied.
//
// nil means that it is on its way. A loop whose mailbox is full, or that has ended, is left out:
// the error joins an *UnreachedError for each of them, which is also loop.ErrMailboxFull or
// loop.ErrServerClosed to errors.Is. The other members do get the message, so who broadcasts again
// sends it to them twice. A member whose codec refuses msg does not get it, which is logged.
func (g *Group) Broadcast(msg []byte) error { return g.BroadcastExcept(loop.Ref{}, msg) }

// BroadcastExcept is Broadcast to all members but one, who said it, say. The zero Ref excepts none.
func (g *Group) BroadcastExcept(except loop.Ref, msg []byte) error {
	return g.post(broadcast{except: except, msg: bytes.Clone(msg)})
}

// BroadcastKey is Broadcast of the newest value of something, such as a price or a position. Where
// a message with the same key still waits for a member, by Keep, msg takes its place. An empty key
// is Broadcast.
func (g *Group) BroadcastKey(key string, msg []byte) error {
	return g.post(broadcast{key: key, msg: bytes.Clone(msg)})
}

// Each calls f for each member, on its loop, so on several at once. Any goroutine may call Each; it
// does not wait. f may do what a callback of the connection may, also Leave. A panic in f closes
// that connection. The error is Broadcast's. A nil f panics here.
func (g *Group) Each(f func(c *loop.Conn)) error {
	require(f != nil, "Group.Each with a nil func")
	return g.post(broadcast{each: f})
}

// post posts b to each loop with members.
func (g *Group) post(b broadcast) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seq++
	b.seq = g.seq
	for _, s := range g.shards {
		number, e := in.PostPieces(s.loop, s.task)
		if e != nil {
			err = errors.Join(err, &UnreachedError{Loop: s.loop, Members: len(s.members), Err: e})
			continue
		}
		b.number = number
		s.posted = append(s.posted, b)
	}
	return err
}

// shard returns l's, or nil. g.mu is held.
func (g *Group) shard(l *loop.Loop) *shard {
	if i := slices.IndexFunc(g.shards, func(s *shard) bool { return s.loop == l }); i >= 0 {
		return g.shards[i]
	}
	return nil
}

const (
	unsent = "a broadcast cannot be encoded"

	pieceMembers = 256 // served at a stretch: with a write to each about a millisecond
	maxBatch     = 32  // broadcasts that wait one after the other go to a member in one write
	maxForms     = 8   // of one message: members whose codec needs another get it by Send
)

// A shard is the members on one loop, which alone changes them, under the lock.
type shard struct {
	group   *Group
	loop    *loop.Loop
	members []member
	place   map[*loop.Conn]int // in members
	task    func() bool        // the method run, made once
	posted  []broadcast        // and not begun, with the group's lock
	batch   []broadcast        // is being sent
	from    int                // members from this one on have been visited
	along   int                // tasks that have nothing to do: their broadcasts went along with one before
}

type member struct {
	c       *loop.Conn
	seen    uint64   // up to here it got everything, or was not concerned
	backlog *backlog // nil: nothing has ever waited for it
}

// A broadcast is a message, or f of Each, on one loop. It has its own task in the mailbox.
type broadcast struct {
	seq    uint64
	number uint64 // of that task
	msg    []byte
	key    string
	except loop.Ref
	each   func(c *loop.Conn) // nil: msg is sent
	forms  []*form
}

// remove reports whether c was a member. The last member moves to its place.
func (s *shard) remove(c *loop.Conn) bool {
	i, ok := s.place[c]
	if !ok {
		return false
	}
	delete(s.place, c)
	if b := s.members[i].backlog; b != nil {
		b.clear()
	}
	last := len(s.members) - 1
	if i != last {
		s.members[i] = s.members[last]
		s.place[s.members[i].c] = i
	}
	s.members = slices.Delete(s.members, last, last+1)
	return true
}

// run is the task of each broadcast. A large crowd is served in pieces: see inside.Handler.PostPieces.
func (s *shard) run() (more bool) {
	if len(s.batch) == 0 && !s.begin() {
		return false
	}
	end := s.from
	s.from = max(0, end-pieceMembers)
	for i := range s.batch {
		s.visit(&s.batch[i], s.from, end)
	}
	if s.from > 0 {
		return true
	}
	s.batch = nil
	return false
}

// begin takes the next broadcast, and those directly behind it, which leave in one write.
func (s *shard) begin() bool {
	if s.along > 0 {
		s.along--
		return false
	}
	n := 0
	s.group.mu.Lock()
	for n < len(s.posted) && n < maxBatch && s.posted[n].number == s.posted[0].number+uint64(n) {
		n++
	}
	s.batch = append(s.batch, s.posted[:n]...)
	clear(s.posted[:n])
	if s.posted = s.posted[n:]; len(s.posted) == 0 {
		s.posted = nil
	}
	s.group.mu.Unlock()
	if n == 0 { // a Goexit has taken a task away: the loop ends
		return false
	}
	s.from, s.along = len(s.members), n-1
	return true
}

// visit serves each member of a piece that had joined before the broadcast. A panic closes the
// connection it was for. Members may join and leave meanwhile, so it goes from the last to the
// first: what remove moves to an earlier place was visited, or joined later, and seen tells that.
func (s *shard) visit(b *broadcast, from, end int) {
	i := end
	var current *loop.Conn
	rest := func() {
		for i > from {
			i--
			if i >= len(s.members) || s.members[i].seen >= b.seq {
				continue
			}
			m := &s.members[i]
			m.seen, current = b.seq, m.c
			switch {
			case b.each != nil:
				b.each(m.c)
			case m.c.Ref() != b.except:
				s.send(m, b)
			}
		}
	}
	for {
		err := in.Try(s.loop, rest)
		if err == nil {
			return
		}
		current.CloseWithError(err)
	}
}

// send sends a message to a member, or has it wait. User code may make members move, and m invalid.
func (s *shard) send(m *member, b *broadcast) {
	c, behind := m.c, m.backlog
	if s.group.Keep == 0 || (behind == nil || len(behind.queue) == 0) && in.WhenPending(c, slowMark(c), nil) {
		b.form(c).send(c, b.msg)
		return
	}
	if behind == nil {
		behind = &backlog{c: c, group: s.group}
		m.backlog = behind
	}
	behind.add(waiting{b.key, b.form(c), b.msg})
}

// slowMark is how many bytes may be pending before messages wait, with Keep.
func slowMark(c *loop.Conn) int { return min(64<<10, in.MaxOutbound(c)/2) }

// A backlog is what waits for a member that is slow. It is its loop's.
type backlog struct {
	c       *loop.Conn
	group   *Group
	queue   []waiting
	first   uint64            // the number of the first in the queue
	keys    map[string]uint64 // numbers by key
	flushes bool              // flush will be called
}

type waiting struct {
	key  string
	form *form
	msg  []byte
}

func (b *backlog) add(w waiting) {
	if at, ok := b.keys[w.key]; ok {
		b.queue[at-b.first] = w
		b.group.dropped.Add(1)
		return
	}
	if len(b.queue) == b.group.Keep {
		b.take()
		b.group.dropped.Add(1)
	}
	if w.key != "" {
		if b.keys == nil {
			b.keys = make(map[string]uint64)
		}
		b.keys[w.key] = b.first + uint64(len(b.queue))
	}
	if b.queue = append(b.queue, w); !b.flushes {
		b.flush()
	}
}

// take takes out the oldest.
func (b *backlog) take() (w waiting) {
	w, b.queue[0] = b.queue[0], w
	b.queue = b.queue[1:]
	b.first++
	delete(b.keys, w.key)
	return w
}

// flush sends what waits, as far as the member takes it.
func (b *backlog) flush() {
	b.flushes = false
	for len(b.queue) > 0 {
		if !in.WhenPending(b.c, slowMark(b.c), b.flush) {
			b.flushes = true
			return
		}
		w := b.take()
		if w.form != nil && w.form.codec != frameKey(b.c.Codec()) { // the codec has changed, or ends
			w.form = nil
		}
		w.form.send(b.c, w.msg)
	}
	b.clear()
}

// clear forgets what waits, and gives the memory back.
func (b *backlog) clear() { b.queue, b.keys = nil, nil }

// A form is the wire form of a message, made once for all members with equal codecs. It is never
// changed. nil: the codec needs one of its own, which Send makes.
type form struct {
	codec any // the codec, or its FrameKey
	wire  []byte
	err   error
}

// form returns the wire form of the message for c.
func (b *broadcast) form(c *loop.Conn) *form {
	cd := c.Codec()
	key := frameKey(cd)
	if i := slices.IndexFunc(b.forms, func(f *form) bool { return f.codec == key }); i >= 0 {
		return b.forms[i]
	}
	if key == nil || len(b.forms) == maxForms {
		return nil
	}
	wire, err := cd.AppendFrame(make([]byte, 0, len(b.msg)+16), b.msg)
	warnSeldom(c, err, unsent)
	f := &form{key, wire, err}
	b.forms = append(b.forms, f)
	return f
}

// send sends the form, or msg if it is nil, to c.
func (f *form) send(c *loop.Conn, msg []byte) {
	if f == nil {
		warnSeldom(c, c.Send(msg), unsent)
	} else if f.err == nil {
		_, err := c.Write(f.wire)
		warnSeldom(c, err, unsent)
	}
}

// A FrameKeyer is a codec.Stateful whose AppendFrame gives the same bytes for many connections, so
// that a broadcast is encoded once for all of them. WebSocket without compression is an example. A
// codec that is not Stateful is its own key if it is comparable.
type FrameKeyer interface {
	// FrameKey returns a comparable value: two codecs with equal keys encode alike, now. nil means
	// that this one has to encode for itself. It is called for each broadcast, on the goroutine of
	// the connection's loop.
	FrameKey() any
}

// frameKey returns the key under which the wire form for cd can be shared, or nil.
func frameKey(cd codec.Codec) any {
	switch cd := cd.(type) {
	case codec.Lines, codec.Length, codec.Raw: // most servers: faster than asking
		return cd
	case FrameKeyer:
		return cd.FrameKey()
	case codec.Stateful:
		return nil
	}
	if reflect.ValueOf(cd).Comparable() {
		return cd
	}
	return nil
}
