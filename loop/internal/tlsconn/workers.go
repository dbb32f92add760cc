package tlsconn

import (
	"context"
	"time"
)

// Workers bound how many handshakes compute at the same time, beside the loops. The others wait, in
// the order in which they have come.
//
// One that has been at it for long waits for somebody in a hook of the user's, and computes
// nothing: its place goes to another one. There may be some of these at most, too.
type Workers struct {
	computing chan struct{} // has an element for each
	slow      chan struct{}
	patience  time.Duration // after it a handshake counts as slow
}

// NewWorkers returns Workers that let at most n handshakes compute at once, and at most maxSlow be
// slow.
func NewWorkers(n, maxSlow int) *Workers {
	return &Workers{make(chan struct{}, n), make(chan struct{}, maxSlow), 200 * time.Millisecond}
}

// begin waits until a handshake may compute, or its context ends. The function that it returns must
// be called when it has computed.
func (w *Workers) begin(ctx context.Context) (end func()) {
	select {
	case w.computing <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	timer := time.AfterFunc(w.patience, func() {
		w.slow <- struct{}{} // waits if there are too many
		<-w.computing
	})
	return func() {
		if timer.Stop() {
			<-w.computing
		} else { // the function of the timer sees to the other one, now or soon
			<-w.slow
		}
	}
}
