//go:build unix

package handover

import (
	"bytes"
	"fmt"
	"sync"
	"time"
)

// sendState sends what Config.State saves.
func (g *giving) sendState(deadline time.Time) error {
	s := g.h.cfg.State
	if s == nil {
		return nil
	}
	g.frozen = true
	if err := g.callState("Freeze", deadline, s.Freeze); err != nil {
		return err
	}
	w := &stateWriter{g: g, deadline: deadline}
	defer w.end()
	if err := g.callState("Save", deadline, func() error { return s.Save(w) }); err != nil {
		return err
	}
	return w.send(1)
}

// callState calls a method of the State, after the last one has returned, and gives up at the
// deadline. While a method runs this process begins no other handover.
func (g *giving) callState(name string, deadline time.Time, f func() error) error {
	last, done, result := g.state, make(chan struct{}), make(chan error, 1)
	g.state = done
	go func() {
		defer close(done)
		if last != nil {
			<-last
		}
		result <- f()
	}()
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case err := <-result:
		if err != nil {
			return fmt.Errorf("handover: State.%s: %w", name, err)
		}
		return nil
	case <-late.C:
		return fmt.Errorf("handover: State.%s has not returned within Config.Timeout", name)
	}
}

// thaw does not wait for a Thaw that comes after a method that hangs.
func (g *giving) thaw() {
	deadline := time.Now().Add(g.h.cfg.Timeout)
	select {
	case <-g.state:
	default:
		deadline = time.Now()
	}
	if err := g.callState("Thaw", deadline, func() error { g.h.cfg.State.Thaw(); return nil }); err != nil {
		g.h.log(func() {
			g.h.srv.Logger.Error().Err(err).Msg("handover: no handover can begin until the State's method returns")
		})
	}
}

// A stateWriter sends the State in chunks.
type stateWriter struct {
	g        *giving
	mu       sync.Mutex // for a Save that goes on after its time
	ended    bool
	buf      bytes.Buffer
	sum      int64
	deadline time.Time
}

func (w *stateWriter) Write(p []byte) (int, error) {
	if w.sum += int64(len(p)); w.sum > w.g.h.cfg.MaxState {
		return 0, fmt.Errorf("handover: the State has more than MaxState, %d bytes", w.g.h.cfg.MaxState)
	}
	w.buf.Write(p)
	for w.buf.Len() >= stateChunk {
		if err := w.send(0); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// end lets nothing more be sent.
func (w *stateWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

// send sends a chunk; last is 1 with the last one.
func (w *stateWriter) send(last int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return errLate // Save goes on after its time
	}
	return w.g.line.write(message{kind: stateData, n: last, body: w.buf.Next(stateChunk)}, nil, w.deadline)
}
