//go:build inspect

package loop

import (
	"fmt"
	"slices"
)

// inspecting says that loops check themselves at the end of each turn: this is a build with the tag
// inspect, for tests.
const inspecting = true

// inspectMany is how many connections a loop looks at in one turn. It goes through them in rounds.
// With 64 two thirds of the CPU time of a soak of 10,000 connections went here.
const inspectMany = 16

// inspection is what a loop remembers for that.
type inspection struct {
	fault string // what was found within a turn
	next  int    // where the next round begins
}

// enters notes a step from c's state to s, which must be one of allowed. The turn ends with a panic
// otherwise: one within it might be recovered.
func (i *inspection) enters(c *Conn, s state, allowed []state) {
	if !slices.Contains(allowed, s) && i.fault == "" {
		i.fault = fmt.Sprintf("connection %d goes from state %d to %d", c.id, c.at(), s)
	}
}

// mustBeSound panics, at the end of a turn, if something is not as it must be between turns.
// Nothing recovers that: it is the framework's own fault, and ends the test.
func (l *Loop) mustBeSound() {
	l.require(l.inspection.fault == "", l.inspection.fault)
	l.require(l.touched.len() == 0 || l.turnComing.Load(), "a connection that was touched waits for a turn, and none comes")
	l.require(l.runQueue.len() == 0 || l.turnComing.Load(), "something waits for a turn, and none comes")
	l.require(l.running.decoding == 0, "a callback has not come to its end")
	counted := len(l.conns)
	for _, g := range l.lingering {
		if l.require(l.wheel.Pending(g.timer), "a socket lingers without an end"); g.slot.holds&holdsLoad != 0 {
			counted++
		}
	}
	l.require(int(l.load.Load()) >= counted, "connections are not counted")
	if n := l.store.InUse(); n != 0 && len(l.conns)+len(l.lingering)+len(l.arrivals)+len(l.dials) == 0 {
		l.require(false, fmt.Sprintf("buffers of %d bytes count as used, and there is no connection", n))
	}
	for range min(inspectMany, len(l.conns)) {
		l.inspection.next = (l.inspection.next + 1) % len(l.conns)
		c := l.conns[l.inspection.next]
		c.require(int(c.index) == l.inspection.next, "it is not in its place of the list")
		c.mustBeSound()
	}
}

// mustBeSound is about a connection in the loop's list.
func (c *Conn) mustBeSound() {
	if c.out.todo&settleDue != 0 { // its end of the turn is still to come
		c.require(c.loop.touched.len() > 0, "it counts as touched")
		return
	}
	s := c.at()
	if c.isFrozen() {
		return // it has no timers, and may be another process's
	}
	c.require(s == stateOpen || s == stateDraining || s == stateFlushing, "a turn ends in this state, and it is in the list")
	c.require(c.handler != nil, "it has no handler")
	c.require(c.sock != nil || c.isUDP() || c.outlivesSocket(), "it has no socket")
	if b := c.out.box; b != nil {
		c.require(b.Len() > 0, "it holds memory for output, and has none")
		c.require(b.Blocked, "it has output, and nothing is waited for")
	}
	c.require(!c.in.socketPaused || c.in.pauses != 0 || s == stateFlushing, "its socket is paused for no reason")
	c.require(c.in.pauses&heldBack == 0 || c.out.box != nil || s == stateFlushing, "it is held back, and has no output")
	c.require(c.idle.extras == nil || c.idle.extras.frame.due == 0 || c.in.pauses&^inRunQueue == 0, "the time of a frame runs while nothing is decoded")
	c.require((c.tlsStart() != nil) == (c.in.pauses&startingTLS != 0), "it is, and is not, about to speak TLS")
	if s == stateFlushing {
		c.mustFlush()
		return
	}
	c.require(s == stateOpen || c.hasBusiness() || c.in.pauses&heldByAnswers != 0 && c.owesAnswer(), "it finishes, and waits for nothing")
	c.require(c.idle.timeout == 0 || c.loop.wheel.Pending(c.idle.timer), "it has an idle timeout and no timer")
	for i, prev := c.timers, uint32(0); i != 0; i, prev = c.loop.timers[i].next, i {
		c.require(c.loop.timers[i].c == c && c.loop.timers[i].prev == prev, "its timers are not linked")
		c.require(c.loop.wheel.Handle(int(i)).Index() != 0, "it has a timer that is not pending")
	}
}

// mustFlush is about one that is closing: nothing else happens.
func (c *Conn) mustFlush() {
	c.require(c.loop.wheel.Pending(c.extras.ending.timer), "it flushes without an end")
	c.require(c.timers == 0 && c.idle.extras == nil && !c.loop.wheel.Pending(c.idle.timer), "it is closing, and has timers")
	c.require(c.in.decoder.Buffered() == 0, "it is closing, and keeps input")
}

func (l *Loop) require(ok bool, what string) {
	if !ok {
		panic("loop: invariant broken: " + what)
	}
}

func (c *Conn) require(ok bool, what string) {
	if !ok {
		panic(fmt.Sprintf("loop: invariant broken: connection %d in state %d: %s", c.id, c.at(), what))
	}
}
