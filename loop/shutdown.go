package loop

import (
	"context"
	"errors"
)

// Shutdown ends the server, as the end of Start's context does, and waits until no function of the
// user's runs any more: the loops, and what they call, as Wait does; and jobs of Offload that do
// not heed their context, which Wait leaves behind after 5 s. It returns what Wait returns, or the
// error of ctx, if that is done before. Then the end goes on, and Shutdown may be called again. Any
// number of goroutines may call it, after Start, but no loop's.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.ready.Load() {
		return errors.New("loop: Server.Shutdown needs a Server that was started")
	}
	s.cancel()
	if err := await(ctx, s.done); err != nil {
		return err
	}
	for _, l := range s.loops {
		if err := await(ctx, l.ended); err != nil {
			return err
		}
	}
	if err := await(ctx, s.jobs.Done()); err != nil {
		return err
	}
	return s.err
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	default:
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
