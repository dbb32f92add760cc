package timing

import (
	"cmp"
	"slices"
	"time"
)

// Pending is a timer that a [Scheduler] gave up: its callback will not be called any more, unless
// by whoever gets it here.
type Pending struct {
	When time.Time // of a periodic timer, the next call
	Key  string    // empty if it has none
	Func func()
}

// Drain takes all pending timers off the scheduler, at one moment, and then calls fn with each, in
// the order of their deadlines, on the caller's goroutine. fn may be nil, and may add timers, which
// stay. It returns how many there were.
func (s *Scheduler) Drain(fn func(Pending)) int {
	s.lock()
	all := s.takeAll(nil)
	s.mu.Unlock()
	if fn != nil {
		for _, p := range all {
			fn(p)
		}
	}
	return len(all)
}

// Stop ends the scheduler and returns what was pending, in the order of the deadlines, including
// what waits for the Executor. No callback is started afterwards; Stop does not wait for one that
// has been, so a callback may call it. Methods that return an error then return ErrStopped, the
// others find nothing. To stop again does nothing and returns nil.
func (s *Scheduler) Stop() []Pending {
	s.lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.disarm()
	var waiting []due
	for _, d := range s.waiting {
		waiting = append(waiting, *d)
	}
	clear(s.waiting)
	return s.takeAll(waiting)
}

// takeAll empties the wheel, and returns what was in it together with what is given, in the order
// of the deadlines.
func (s *Scheduler) takeAll(all []due) []Pending {
	for _, p := range s.wheel.inOrder() {
		f := *s.wheel.calls.at(p.timer.index)
		all = append(all, due{f: f, when: p.when, timer: p.timer})
	}
	s.wheel.Drain(nil)
	s.counts.stopped += uint64(len(all))
	slices.SortStableFunc(all, func(a, b due) int { return cmp.Compare(a.when, b.when) })
	keys := make(map[Timer]string, len(s.keys))
	for key, k := range s.keys {
		keys[k.timer] = key
	}
	var given []Pending
	for _, d := range all {
		p := Pending{When: s.start.Add(d.when), Func: d.f}
		if key, ok := keys[d.timer]; ok {
			p.Key, p.Func = key, s.keys[key].f
			delete(s.keys, key)
		}
		given = append(given, p)
	}
	return given
}
