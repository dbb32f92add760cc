package loop

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxSlowTurns = 8                // how many are kept of each loop
	slowTurnAge  = 10 * time.Minute // and for how long
	minSlowTurn  = time.Millisecond // what is shorter is never kept
)

// A SlowTurn is a time for which a loop was busy at a stretch, without a look at its sockets.
type SlowTurn struct {
	Began time.Time
	Took  time.Duration

	// Conn is the ID of the connection whose code ran last in it, and Handler the type of its
	// Handler. 0 and "" stand for the loop's own timers and posts.
	Conn    uint64
	Handler string
}

// slowTurns are the longest turns of one loop. The loop writes, and any goroutine reads.
type slowTurns struct {
	least atomic.Int64 // what a turn must exceed to be kept
	mu    sync.Mutex
	kept  []SlowTurn
}

// note keeps a turn that began at began on the server's clock, if it is one of the longest. Nearly
// always it only compares.
func (l *Loop) noteSlow(took time.Duration) {
	s := &l.health.slow
	if took < minSlowTurn || int64(took) <= s.least.Load() {
		return
	}
	t := SlowTurn{Began: l.wallTime(l.now), Took: took}
	if c := l.current; c != nil {
		t.Conn, t.Handler = c.id, c.handlerName()
	}
	s.keep(t)
}

func (s *slowTurns) keep(t SlowTurn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(t.Began)
	if len(s.kept) == maxSlowTurns {
		s.kept = s.kept[:maxSlowTurns-1]
	}
	at, _ := slices.BinarySearchFunc(s.kept, t, func(a, b SlowTurn) int { return cmp.Compare(b.Took, a.Took) })
	s.kept = slices.Insert(s.kept, at, t)
	if len(s.kept) == maxSlowTurns {
		s.least.Store(int64(s.kept[maxSlowTurns-1].Took))
	}
}

// forget drops what is too old. s.mu is held.
func (s *slowTurns) forget(now time.Time) {
	s.kept = slices.DeleteFunc(s.kept, func(t SlowTurn) bool { return now.Sub(t.Began) > slowTurnAge })
	if len(s.kept) < maxSlowTurns {
		s.least.Store(0)
	}
}

// SlowTurns returns the longest turns of the last ten minutes, the longest first: eight at most,
// and none shorter than a millisecond. As for LoopStats.Turn, short ones are measured now and then
// only. Any goroutine may call it.
func (l *Loop) SlowTurns() []SlowTurn {
	s := &l.health.slow
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(l.Now())
	return slices.Clone(s.kept)
}
