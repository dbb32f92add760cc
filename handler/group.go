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

// GroupConfig holds the settings of a Group. The zero value is ready to use.
type GroupConfig struct {
	// Backlog is how many messages wait for a slow member, one with more than 64 KiB of output
	// pending, or half of Server.Limits.MaxOutbound if that is less. A full backlog drops its
	// oldest message for a new one. Messages sent to the member directly, and Each's f, overtake
	// the backlog. 0 means no backlog: Server.Limits.MaxOutbound closes slow members.
	Backlog int
}

// A Group is a set of connections, on any number of loops, that get the same messages: a room, a
// topic, all subscribers of a price.
//
// A broadcast copies the message once, posts to each loop that has members once, and encodes it
// there once per codec, however many members there are. Members leave when they close. A slow
// member does not affect others: the limit of its own output closes it, or it gets a Backlog.
// During a long broadcast the loop serves other connections after every 256 members, or fewer if
// they are sent more than a megabyte; later posts and Tells to that loop wait until all members are
// served.
//
// # Order
//
// Join, Leave, Broadcast and Each take effect in one order, which is the same for all members. A
// call that returned before another began comes first. A member gets the broadcasts made after its
// Join, and none after its Leave. So a room with a history that holds one lock while it appends to
// the history and broadcasts, and while it copies the history and joins a member, shows each member
// every message once.
//
// A broadcast never runs inline, not even for members of the caller's own loop: it takes its place
// in the loop's mailbox. A callback's messages to its own connection therefore precede its
// broadcasts, even if it broadcast first.
type Group struct {
	id      uint64     // in the order of which several are locked
	keep    int        // GroupConfig.Backlog
	mu      sync.Mutex // held while posting, which makes the order the same on all loops
	seq     uint64     // of the last Broadcast, Each or Join
	shards  []*shard   // of the loops that have members
	len     int
	dropped atomic.Uint64
}

// NewGroup returns an empty Group. A negative Backlog panics.
func NewGroup(cfg GroupConfig) *Group {
	require(cfg.Backlog >= 0, "GroupConfig.Backlog is negative")
	return &Group{id: groups.Add(1), keep: cfg.Backlog}
}

var groups atomic.Uint64 // that were made

// An UnreachedError reports that a broadcast did not reach the members on one loop.
type UnreachedError struct {
	Loop    *loop.Loop
	Members int   // how many were not reached
	Err     error // loop.ErrMailboxFull or loop.ErrServerClosed
}

// Error names the loop and the reason.
func (e *UnreachedError) Error() string {
	return fmt.Sprintf("handler: %d members on loop %d not reached: %v", e.Members, e.Loop.Index(), e.Err)
}

// Unwrap returns Err.
func (e *UnreachedError) Unwrap() error { return e.Err }

// Join makes c a member until it leaves or has closed (after OnClose), and reports whether it was not
// one before. It must be called on c's loop, in Accept or later. If c has closed it returns false.
func (g *Group) Join(c *loop.Conn) bool {
	onLoop(c, "handler.Group.Join")
	state := stateOf(c)
	if state.closed {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.shardFor(c.Loop())
	if s.find(c) != nil {
		return false
	}
	g.seq++
	g.len++
	s.add(member{c: c, seen: g.seq, passage: new(passage)})
	state.groups = append(state.groups, g)
	return true
}

// Leave ends c's membership and reports whether there was one: c gets nothing more from g, not even
// earlier broadcasts that have not reached it yet. It must be called on c's loop, where Each's f
// may call it, too.
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
	if s == nil || s.find(c) == nil {
		return false
	}
	g.len--
	if b := s.find(c).backlog; b != nil {
		g.dropped.Add(uint64(len(b.queue)))
		b.clear()
	}
	g.remove(s, c)
	return true
}

// remove takes c out of a shard. g.mu is held.
func (g *Group) remove(s *shard, c *loop.Conn) {
	if s.remove(c); len(s.members)+len(s.joining) == 0 {
		g.shards = slices.DeleteFunc(g.shards, func(other *shard) bool { return other == s })
	}
}

// move makes c, which moves to another loop, a member there. It returns the shard where c remains
// for broadcasts that have come there, if there are any. g.mu is held.
func (g *Group) move(c *loop.Conn, from, to *loop.Loop) *shard {
	s := g.shard(from)
	m := s.find(c)
	m.passage = new(passage)
	next := g.shardFor(to)
	next.joining = append(next.joining, member{c: c, seen: g.seq, backlog: m.backlog, passage: m.passage})
	if m.backlog = nil; len(s.posted)+len(s.batch) > 0 {
		return s
	}
	g.remove(s, c)
	return nil
}

// left ends what move has left.
func (g *Group) left(s *shard, c *loop.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(s, c)
}

// deliver serves a member that has moved, on its loop now, unless it is the member no more that it
// was then.
func (g *Group) deliver(c *loop.Conn, p *passage, b *broadcast) {
	g.mu.Lock()
	s := g.shard(c.Loop())
	var m *member
	if s != nil {
		m = s.find(c)
	}
	g.mu.Unlock()
	if m != nil && m.passage == p {
		s.serve(m, b)
	}
}

// Has reports whether c is a member. It must be called on c's loop.
func (g *Group) Has(c *loop.Conn) bool {
	onLoop(c, "handler.Group.Has")
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.shard(c.Loop())
	return s != nil && s.find(c) != nil
}

// Len returns the number of members. One that closes counts until its OnClose has returned. Any goroutine may call it.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.len
}

// Dropped returns how many messages in backlogs were dropped, as the backlog was full or its member
// left or closed, or replaced by BroadcastKey. Any goroutine may call it.
func (g *Group) Dropped() uint64 { return g.dropped.Load() }

// Broadcast sends msg, as one message, to all members. Any goroutine may call it, a loop's too; msg
// is copied.
//
// nil means that msg is on its way. A loop whose mailbox is full, or that has ended, is left out:
// the error joins an *UnreachedError for each of them, which is also loop.ErrMailboxFull or
// loop.ErrServerClosed to errors.Is. The other members do get msg, and a second Broadcast would
// send it to them twice. A callback of a connection gets no loop.ErrMailboxFull: the connection is
// not read until half of the mailbox has run (see loop.Limits.MaxMailbox). If a member's codec
// refuses msg, it does not get it, and this is logged. A member for whom the codec keeps too much
// already, as its handshake is not done, is closed.
func (g *Group) Broadcast(msg []byte) error { return g.BroadcastExcept(loop.Ref{}, msg) }

// BroadcastExcept is Broadcast to all members but one, such as the sender. The zero Ref excepts
// none.
func (g *Group) BroadcastExcept(except loop.Ref, msg []byte) error {
	return g.post(broadcast{except: except, msg: bytes.Clone(msg)})
}

// BroadcastKey is Broadcast of the newest value of something, such as a price or a position: msg
// replaces a message with the same key in the backlog of a member, at its place: before what was
// broadcast in between. With an empty key it is Broadcast.
func (g *Group) BroadcastKey(key string, msg []byte) error {
	return g.post(broadcast{key: key, msg: bytes.Clone(msg)})
}

// Flush delivers to c at once the broadcasts, and calls of Each, that are on their way to it. What
// waits in its Backlog stays there. It is for Save of a loop.Saver: what comes later does not go
// with the connection. It must be called on c's loop.
func (g *Group) Flush(c *loop.Conn) {
	onLoop(c, "handler.Group.Flush")
	g.mu.Lock()
	s := g.shard(c.Loop())
	var due []broadcast
	if s != nil {
		due = slices.Concat(s.batch, s.posted)
	}
	g.mu.Unlock()
	for i := range due {
		b := &due[i]
		g.mu.Lock()
		m := s.find(c)
		isDue := m != nil && m.seen < b.seq
		if isDue {
			m.seen = b.seq
		}
		g.mu.Unlock()
		if isDue && c.Ref() != b.except {
			s.serve(m, b)
		}
	}
}

// Each calls f for each member, on its loop, so on several loops at once. Any goroutine may call
// Each; it does not wait. f may do whatever a callback of the connection may, including Leave. A
// panic in f closes that connection. The error is Broadcast's. A nil f panics here.
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
			err = errors.Join(err, &UnreachedError{Loop: s.loop, Members: len(s.members) + len(s.joining), Err: e})
			continue
		}
		b.taskNo = number
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

// shardFor returns l's, which it makes if there is none. g.mu is held.
func (g *Group) shardFor(l *loop.Loop) *shard {
	s := g.shard(l)
	if s == nil {
		s = &shard{group: g, loop: l, place: make(map[*loop.Conn]int)}
		s.task = s.run
		g.shards = append(g.shards, s)
	}
	return s
}

const (
	unsent = "a broadcast cannot be sent"

	pieceMembers = 256     // members served in one task: with a write to each about a millisecond
	pieceBytes   = 1 << 20 // fewer of them, if they are sent more than this
	maxBatch     = 32      // consecutive broadcasts that go to a member in one write
	maxForms     = 8       // of one message: members whose codec needs yet another get it by Send
)

// A shard is the members on one loop, which alone changes them, under the lock.
type shard struct {
	group   *Group
	loop    *loop.Loop
	members []member
	joining []member           // members that come from other loops, which have put them here
	place   map[*loop.Conn]int // in members
	task    func() bool        // the method run, made once
	posted  []broadcast        // broadcasts not begun, with the group's lock
	batch   []broadcast        // broadcasts being sent
	visited int                // the members from this index on have got the batch
	merged  int                // tasks without work: their broadcasts are in the batch of an earlier one
}

type member struct {
	c       *loop.Conn
	seen    uint64   // the last broadcast that it got, or that was made before it joined
	backlog *backlog // nil: no message has waited for it so far
	passage *passage // of its Join, or its last move to another loop
}

// A passage is a member's Join, or its move from one loop to another, by which broadcasts find it
// that come later: not those from before another Join.
type passage struct{ _ byte }

// A broadcast is a message, or f of Each, on one loop. It has its own task in the mailbox.
type broadcast struct {
	seq    uint64
	taskNo uint64 // the number of that task
	msg    []byte
	key    string
	except loop.Ref
	each   func(c *loop.Conn) // nil: msg is sent
	forms  []*form
}

// find returns c's member, or nil. It is valid until the next call of a method. It is called on the
// shard's loop, and the group's lock is held, as for add and remove.
func (s *shard) find(c *loop.Conn) *member {
	s.takeIn()
	if i, ok := s.place[c]; ok {
		return &s.members[i]
	}
	return nil
}

func (s *shard) add(m member) {
	s.place[m.c] = len(s.members)
	s.members = append(s.members, m)
}

// takeIn adds those that are joining.
func (s *shard) takeIn() {
	for _, m := range s.joining {
		s.add(m)
	}
	s.joining = nil
}

// remove removes c, which is a member. The last member moves to its place.
func (s *shard) remove(c *loop.Conn) {
	i := s.place[c]
	delete(s.place, c)
	last := len(s.members) - 1
	if i != last {
		s.members[i] = s.members[last]
		s.place[s.members[i].c] = i
	}
	s.members = slices.Delete(s.members, last, last+1)
}

// run is the task of each broadcast. It serves a large group in pieces: see PostPieces of
// inside.ForHandler.
func (s *shard) run() (more bool) {
	if len(s.batch) == 0 && !s.begin() {
		return false
	}
	each := 0 // bytes for a member
	for _, b := range s.batch {
		each += len(b.msg)
	}
	end := s.visited
	s.visited = max(0, end-min(pieceMembers, max(1, pieceBytes/max(1, each))))
	for i := range s.batch {
		s.visit(&s.batch[i], s.visited, end)
	}
	if s.visited > 0 {
		return true
	}
	s.batch = nil
	return false
}

// begin takes the next broadcast, and those directly behind it, which go out in one write.
func (s *shard) begin() bool {
	if s.merged > 0 {
		s.merged--
		return false
	}
	n := 0
	s.group.mu.Lock()
	s.takeIn()
	for n < len(s.posted) && n < maxBatch && s.posted[n].taskNo == s.posted[0].taskNo+uint64(n) {
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
	s.visited, s.merged = len(s.members), n-1
	return true
}

// visit serves the members from one index up to another that had joined before the broadcast. A
// panic closes the member's connection. Members may join and leave meanwhile, so it goes from the
// last to the first: a member that remove moves down has been visited, or joined later, and seen
// shows that.
func (s *shard) visit(b *broadcast, from, end int) {
	var c *loop.Conn // whose code runs
	next := func() {
		for end > from {
			end--
			if end >= len(s.members) || s.members[end].seen >= b.seq {
				continue
			}
			m := &s.members[end]
			m.seen = b.seq
			if c = m.c; c.Ref() == b.except {
				continue
			}
			if in.IsHere(s.loop, c) {
				s.serve(m, b)
			} else {
				s.passOn(m, b)
			}
		}
	}
	for end > from { // once, but for panics: a function for each member would be an allocation for each
		if err := in.Try(s.loop, next); err != nil {
			c.CloseWithError(err)
		}
	}
}

// passOn serves a member that has moved to another loop, or is about to arrive here.
func (s *shard) passOn(m *member, b *broadcast) {
	later, p := *b, m.passage
	later.forms = nil // this loop's
	in.Reach(s.loop, m.c, func(c *loop.Conn) { s.group.deliver(c, p, &later) })
}

// serve calls Each's f for a member, or sends it the message. User code may move members, and then
// m is invalid.
func (s *shard) serve(m *member, b *broadcast) {
	if b.each != nil {
		b.each(m.c)
		return
	}
	c, waits := m.c, m.backlog
	if s.group.keep == 0 || (waits == nil || len(waits.queue) == 0) && in.WhenPending(c, slowMark(c), nil) {
		b.form(c).send(c, b.msg)
		return
	}
	if waits == nil {
		waits = &backlog{c: c, group: s.group}
		m.backlog = waits
	}
	waits.add(waiting{b.key, b.form(c), b.msg})
}

// slowMark is how many bytes may be pending before messages wait in the backlog.
func slowMark(c *loop.Conn) int { return min(64<<10, in.MaxOutbound(c)/2) }

// A backlog is the messages that wait for a slow member. It belongs to the member's loop.
type backlog struct {
	c       *loop.Conn
	group   *Group
	queue   []waiting
	first   uint64            // the number of the first message in the queue
	keys    map[string]uint64 // numbers of messages by key
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
	if len(b.queue) == b.group.keep {
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

// take removes the oldest message.
func (b *backlog) take() (w waiting) {
	w, b.queue[0] = b.queue[0], w
	b.queue = b.queue[1:]
	b.first++
	delete(b.keys, w.key)
	return w
}

// flush sends the backlog, as far as the member takes it.
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

// clear empties the backlog and releases its memory.
func (b *backlog) clear() { b.queue, b.keys = nil, nil }

// A form is the wire form of a message, made once for all members with equal codecs. It is
// immutable. nil: the codec needs a separate one, which Send makes.
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
		err := c.Send(msg)
		if o, ok := c.Codec().(codec.Opener); ok && errors.Is(err, codec.ErrTooLong) && o.Opening() != nil {
			c.CloseWithError(err) // it would miss this one, and get later ones
			return
		}
		warnSeldom(c, err, unsent)
	} else if f.err == nil {
		_, err := c.Write(f.wire)
		warnSeldom(c, err, unsent)
	}
}

// A FrameKeyer is a connection's own codec (made by codec.Stateful.New) whose AppendFrame gives the
// same bytes for many connections, so that a broadcast is encoded once for all of them, such as
// that of a websocket.Codec. A codec that is not Stateful is its own key if it is comparable.
type FrameKeyer interface {
	// FrameKey returns a comparable value: two codecs with equal keys encode alike at present. nil
	// means that this codec shares with no other. It is called for each broadcast, on the
	// connection's loop.
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
