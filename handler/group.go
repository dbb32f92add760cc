package handler

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/loopwheel/loopwheel/loop"
)

// A Group is a set of connections, on any number of loops, that get the same messages: a room, a
// topic, all subscribers of a price. The zero Group is empty and ready to use; it must not be
// copied.
//
// A broadcast copies the message once, crosses to each loop that has members once, and is encoded
// once per codec there, however many members there are. Members leave by themselves when they
// close. One that is slow is closed by the limit of its own output, and disturbs no other. A member
// takes a loop some microseconds, so a crowd is served in pieces of 256, between which the loop has
// time for its other connections; what is posted and told to it waits for the last.
//
// # Order
//
// Join, Leave, Broadcast and Each take effect in one order, which is the same for all members: two
// broadcasts, from whatever goroutines or loops, reach all members in the same order, and if one
// call returned before the other was made, in that one. A member gets the broadcasts that are made
// after its Join, and none after its Leave. So a room with a history, which holds one lock while it
// extends that and broadcasts, and while it copies it and joins a member, shows each member
// everything once.
//
// A broadcast never runs inline, also not for members of the caller's own loop: it keeps its place
// among all that is posted and told to a loop. So what a callback sends to its own connection
// directly comes before what it broadcasts, even if it broadcast first.
type Group struct {
	mu     sync.Mutex // held while posting, which is what makes the order the same on all loops
	seq    uint64     // of the last Broadcast, Each or Join
	shards []*shard   // of the loops that have members
	len    int
}

// An UnreachedError says that a broadcast did not reach the members on one loop, because that takes
// nothing more. Those on the other loops are not concerned.
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

// Join makes c a member until it leaves or has closed, at once if that is so, and reports whether it
// was none before. It must be called on c's loop; Accept may call it, too.
func (g *Group) Join(c *loop.Conn) bool {
	groups := locals.Get(c.Loop()).groups
	if !g.join(c) {
		return false
	}
	in, hooked := groups[c]
	groups[c] = append(in, g)
	if !hooked {
		c.AfterClose(func(error) { leaveAll(c) }) // at once if c is closed already
	}
	return true
}

func (g *Group) join(c *loop.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.shard(c.Loop())
	if s == nil {
		s = newShard(g, c.Loop())
		g.shards = append(g.shards, s)
	}
	if _, ok := s.place[c]; ok {
		return false
	}
	g.seq++
	s.add(c, g.seq)
	g.len++
	return true
}

// Leave ends c's membership and reports whether there was one: from now on c gets nothing from g,
// nor what was broadcast before but has not reached it. It must be called on c's loop, in a
// function of Each, too.
func (g *Group) Leave(c *loop.Conn) bool {
	if !g.leave(c) {
		return false
	}
	groups := locals.Get(c.Loop()).groups
	in := groups[c]
	i := slices.Index(in, g)
	groups[c] = slices.Delete(in, i, i+1) // an empty slice, too: it tells that AfterClose was called
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
		i := slices.Index(g.shards, s)
		g.shards = slices.Delete(g.shards, i, i+1)
	}
	return true
}

// leaveAll is what happens when c has closed.
func leaveAll(c *loop.Conn) {
	groups := locals.Get(c.Loop()).groups
	for _, g := range groups[c] {
		g.leave(c)
	}
	delete(groups, c)
}

// Has reports whether c is a member. It must be called on c's loop.
func (g *Group) Has(c *loop.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.shard(c.Loop())
	if s == nil {
		return false
	}
	_, ok := s.place[c]
	return ok
}

// Len returns the number of members. Any goroutine may call it.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.len
}

// Broadcast sends msg, as one message, to all members. Any goroutine may call it, a loop's too; msg
// is copied.
//
// nil means that it is on its way, in the order that Group describes. A loop whose mailbox is full,
// or that has ended, is left out: the error joins an *UnreachedError for each of them, which is
// also loop.ErrMailboxFull or loop.ErrServerClosed to errors.Is. The other members do get the
// message, so who broadcasts again sends it to them twice. A member whose codec refuses msg does
// not get it; that is logged as a warning.
func (g *Group) Broadcast(msg []byte) error { return g.BroadcastExcept(loop.Ref{}, msg) }

// BroadcastExcept is Broadcast to all members but one, usually the one who said it. The zero Ref
// excepts none.
func (g *Group) BroadcastExcept(except loop.Ref, msg []byte) error {
	return g.post(&saying{except: except, msg: bytes.Clone(msg)})
}

// Each has f called for each member, on the loop of that, so on several loops at once. Any
// goroutine may call Each; it does not wait. f may do what a callback of the connection may, Leave
// included. A panic in f closes the connection that it was called for. The error is Broadcast's. A
// nil f panics here.
func (g *Group) Each(f func(c *loop.Conn)) error {
	if f == nil {
		panic("handler: Group.Each with a nil func")
	}
	return g.post(&saying{each: f})
}

// post posts what to each loop with members.
func (g *Group) post(what *saying) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seq++
	what.seq = g.seq
	for _, s := range g.shards {
		if e := s.post(what); e != nil {
			err = errors.Join(err, &UnreachedError{Loop: s.loop, Members: len(s.members), Err: e})
		}
	}
	return err
}

// shard returns l's, or nil. g.mu is held.
func (g *Group) shard(l *loop.Loop) *shard {
	for _, s := range g.shards {
		if s.loop == l {
			return s
		}
	}
	return nil
}
