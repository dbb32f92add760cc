package handler

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/internal/defaults"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
)

// maxBuffer is the capacity up to which a loop keeps its buffer.
const maxBuffer = 64 << 10

// local is what this package has on each loop.
type local struct {
	buffer []byte              // for messages to be sent
	living map[ending]struct{} // actors, questions of the loop, and Links
	stops  stops               // for Limit
}

// An ending is notified when its loop ends, and then removes itself from local.living.
type ending interface{ loopEnds() }

var locals = loop.NewLocal(func(l *loop.Loop) local {
	living := make(map[ending]struct{})
	in.AfterStop(l, func() {
		for range 2 { // once more for what was added meanwhile
			for e := range living {
				_ = in.Try(l, e.loopEnds)
			}
		}
	})
	return local{living: living}
})

// A connState is what this package keeps of a connection until it has closed. It goes along when the
// connection moves to another loop.
type connState struct {
	c         *loop.Conn
	groups    []*Group // where it is a member
	leaves    []*shard // of the loop that it has left, where it is a member still
	atClose   []func()
	questions questions // of AskConnWait
	asked     bool      // there has been one
	closed    bool
}

// stateOf returns that of c. It must be called on c's loop.
func stateOf(c *loop.Conn) *connState {
	state := in.State(c, func() inside.ConnState[*loop.Loop] {
		s := &connState{c: c}
		c.AfterClose(func(error) {
			s.closed = true
			for _, g := range s.groups {
				g.leave(c)
			}
			for _, f := range s.atClose {
				f()
			}
		})
		return s
	})
	if state == nil {
		return &connState{c: c, closed: true}
	}
	return state.(*connState)
}

// Closing implements inside.ConnState.
func (s *connState) Closing(err error) {
	if s.asked {
		s.questions.end(withReason(loop.ErrClosed, err))
	}
}

// Leave implements inside.ConnState. It holds the locks of all the groups, in one order, so that
// each broadcast comes before the move, on the old loop, or after it, on the new one.
func (s *connState) Leave(from, to *loop.Loop, all []inside.ConnState[*loop.Loop], leave func()) {
	var groups []*Group
	for _, s := range all {
		groups = append(groups, s.(*connState).groups...)
	}
	slices.SortFunc(groups, func(a, b *Group) int { return cmp.Compare(a.id, b.id) })
	groups = slices.Compact(groups)
	for _, g := range groups {
		g.mu.Lock()
		defer g.mu.Unlock()
	}
	for _, s := range all {
		s := s.(*connState)
		for _, g := range s.groups {
			if shard := g.move(s.c, from, to); shard != nil {
				s.leaves = append(s.leaves, shard)
			}
		}
	}
	leave()
}

// Left implements inside.ConnState.
func (s *connState) Left(*loop.Loop) {
	for _, shard := range s.leaves {
		shard.group.left(shard, s.c)
	}
	s.leaves = nil
}

// ask asks c, which is s's.
func (s *connState) ask(c *loop.Conn, q asked, f func()) {
	qs := &s.questions
	if !s.asked {
		s.asked = true
		ref := c.Ref()
		qs.answered = func() { ref.Tell(func(c *loop.Conn) { in.AwaitsAnswers(c, false) }) }
	}
	if qs.add(q) {
		if f(); qs.hold() {
			in.AwaitsAnswers(c, true)
		}
	}
}

// sendBuilt sends what build appends to the loop's buffer. build may send in turn.
func sendBuilt(c *loop.Conn, build func(dst []byte) ([]byte, error)) error {
	l := locals.Get(c.Loop())
	dst := l.buffer
	l.buffer = nil
	msg, err := build(dst)
	if err == nil {
		err = c.Send(msg)
	} else {
		msg = dst // what was returned with an error may be somebody else's
	}
	if cap(msg) > cap(l.buffer) && cap(msg) <= maxBuffer {
		l.buffer = msg[:0]
	}
	return err
}

// warnSeldom logs a warning that a peer may be able to cause, at most once a second. It ignores
// errors of a closing connection, which OnClose reports.
func warnSeldom(c *loop.Conn, err error, msg string) {
	if err != nil && !ends(err) {
		in.Warn(c, err, msg)
	}
}

// offLoop panics on a loop. A method that waits calls it first: it might wait for that loop.
func offLoop(method string) { require(!in.OnLoop(), method+" on a loop, which must not wait") }

// await waits until done is closed, or returns ctx's error.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// in is what package loop has for this package.
var in = inside.Take[inside.ForHandler[*loop.Conn, *loop.Loop, loop.Ref, loop.Dialer]]()

// onLoop panics if method is called on another goroutine than that of c's loop, and calls are
// looked at: see loop.Server.Debug.Strict.
func onLoop(c *loop.Conn, method string) { in.Check(c.Loop(), method) }

// require panics if a programmer's mistake has made ok false.
func require(ok bool, otherwise string) {
	if !ok {
		panic("handler: " + otherwise)
	}
}

// requireUnit panics with the name of a duration that has no unit.
func requireUnit(name string, d time.Duration) {
	if err := defaults.Unit(name, d); err != nil {
		panic("handler: " + err.Error())
	}
}
