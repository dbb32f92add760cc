package tlsconn

import (
	"context"
	"time"
)

// Workers bound how many handshakes compute at the same time, beside the loops. The others queue,
// in order.
//
// A handshake that takes long is taken to block in a user's hook, and not to compute: it gives up
// its slot to the next one. The number of such slow handshakes is bounded as well.
type Workers struct {
	computing chan struct{} // has an element for each handshake that computes
	slow      chan struct{} // and for each slow one
	patience  time.Duration // after which a handshake counts as slow
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
		} else { // the timer's function takes from computing, now or soon
			<-w.slow
		}
	}
}
