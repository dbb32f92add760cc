package handler

import "github.com/loopwheel/loopwheel/loop"

// Marks returns how many deadlines are kept for calls, but for those that have timers of their own.
func Marks[A any](calls *Calls[A]) int { return calls.marks.len() }

// Tracked returns how many memberships and actors this package keeps account of on l. It must be
// called on l.
func Tracked(l *loop.Loop) (conns, memberships, actors int) {
	s := locals.Get(l)
	for _, in := range s.groups {
		memberships += len(in)
	}
	return len(s.groups), memberships, len(s.actors)
}
