//go:build unix

package gnetengine

import "testing"

// A connection that its loop has opened was enrolled, also if the loop has ended before whoever
// enrolled it heard of that: it would be counted twice as gone.
func TestEnrolledBeforeTheLoopEnded(t *testing.T) {
	for _, served := range []bool{true, false} {
		l := &eventLoop{ended: make(chan struct{})}
		ticket := &ticket{loop: l, opened: served, served: served, result: make(chan error, 1)}
		l.end()
		if err := l.await(ticket); (err == nil) != served {
			t.Errorf("the loop has opened it: %v, and then ended; enrolling says %v", served, err)
		}
	}
}
