package loop

import (
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// HasEngine reports whether this system has e.
func HasEngine(e Engine) bool { return makeEngine[e] != nil }

// CountWakes returns a counter of how often the engine is asked for a turn, and of its ticks. It
// must be called in OnStart of the only loop.
func CountWakes(s *Server) *atomic.Int64 {
	l := s.loops[0]
	c := &countedLoop{Loop: l.engine, base: s.base}
	c.ticker = time.AfterFunc(never, func() { c.wakes.Add(1) })
	l.engine = c
	return &c.wakes
}

type countedLoop struct {
	engine.Loop
	base   time.Time
	ticker *time.Timer // goes off together with the engine's
	wakes  atomic.Int64
}

func (l *countedLoop) TickAt(when time.Duration) {
	l.ticker.Reset(max(0, when-time.Since(l.base)))
	l.Loop.TickAt(when)
}

func (l *countedLoop) Wake() {
	l.wakes.Add(1)
	l.Loop.Wake()
}
