package handler

import "github.com/loopwheel/loopwheel/loop"

// Tracked returns how many memberships and actors this package keeps account of on l. It must be
// called on l.
func Tracked(l *loop.Loop) (conns, memberships, actors int) {
	s := locals.Get(l)
	for _, in := range s.groups {
		memberships += len(in)
	}
	return len(s.groups), memberships, len(s.actors)
}
