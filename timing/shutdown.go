package timing

import (
	"slices"
	"time"
)

// Pending is a timer that a [Scheduler] gave up: its callback will not be called any more, unless by whoever gets
// it here.
type Pending struct {
	When time.Time // of a periodic timer, the next call
	Key  string    // empty if it has none
	Func func()
}

// Drain takes all pending timers off the scheduler, at one moment, and then calls fn with each, in the order of
// their deadlines, on the caller's goroutine. fn may be nil, and may add timers, which stay.
// It returns how many there were.
func (s *Scheduler) Drain(fn func(Pending)) int {
	s.lock()
	all := s.takeAll()
	s.mu.Unlock()
	if fn != nil {
		for _, p := range all {
			fn(p)
		}
	}
	return len(all)
}

// Stop ends the scheduler and returns what was pending, in the order of the deadlines, including what
// waits for the Executor. No callback is started afterwards; Stop does not wait for one that has been, so a callback
// may call it. Methods that return an error then return ErrStopped, the others find nothing. To stop again
// does nothing and returns nil.
func (s *Scheduler) Stop() []Pending {
	s.lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	if s.alarm != nil {
		s.alarm.Stop()
	}
	all := s.takeAll()
	for h := range s.waiting {
		all = append(all, Pending{When: s.start.Add(h.when), Func: h.f})
	}
	clear(s.waiting)
	slices.SortStableFunc(all, func(a, b Pending) int { return a.When.Compare(b.When) })
	s.counts.stopped += uint64(len(all))
	return all
}

// takeAll empties the wheel.
func (s *Scheduler) takeAll() []Pending {
	keys := make(map[Timer]string, len(s.keys))
	for key, k := range s.keys {
		keys[k.timer] = key
	}
	var all []Pending
	for _, p := range s.wheel.inOrder() {
		key := keys[p.timer]
		f := s.wheel.chunk(p.timer.index).calls[p.timer.index&chunkMask]
		if k, ok := s.keys[key]; ok && k.timer == p.timer {
			f = k.f
		}
		all = append(all, Pending{When: s.start.Add(p.when), Key: key, Func: f})
	}
	s.wheel.Drain(nil)
	clear(s.keys)
	return all
}
