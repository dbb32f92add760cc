package timing

import (
	"log"
	"math"
	"runtime/debug"
	"time"
)

// wakeBy makes sure that a turn begins when a timer just added or moved is due. Only one that is earlier than all
// the others costs more than a comparison.
func (s *Scheduler) wakeBy(when time.Duration) {
	if when < s.armed && !s.running {
		s.arm()
	}
}

// arm sets the alarm for the wheel's next deadline.
func (s *Scheduler) arm() {
	when, ok := s.wheel.Next()
	if !ok || s.stopped || when == math.MaxInt64 {
		s.armed = math.MaxInt64
		return
	}
	s.armed = when
	if s.alarm == nil {
		s.alarm = time.AfterFunc(when-s.now(), s.turn)
	} else {
		s.alarm.Reset(when - s.now())
	}
}

// turn runs what is due. At most one is running; the alarm that starts another finds nothing to do.
func (s *Scheduler) turn() {
	s.mu.Lock()
	if s.running || s.stopped {
		s.mu.Unlock()
		return
	}
	s.running = true
	s.mu.Unlock()
	// Deferred, as a callback may end its goroutine: the rest then gets another.
	defer s.endTurn()
	for s.runNext() {
	}
}

func (s *Scheduler) endTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	s.arm()
}

// runNext runs the next callback if it is due. The lock is not held while it runs, and nothing else is taken
// from the wheel before it returns: so it can remove its neighbours.
func (s *Scheduler) runNext() bool {
	f, when, more := s.takeNext()
	if f == nil {
		return more
	}
	if s.cfg.Executor == nil {
		s.call(f)
		return true
	}
	s.handOver(f, when)
	return true
}

// takeNext takes a due callback from the wheel. f may be nil though there is more: the wheel's budget has run
// out, which lets others have the lock.
func (s *Scheduler) takeNext() (f func(), when time.Duration, more bool) {
	const budget = 256
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, 0, false
	}
	now := s.now()
	s.wheel.Advance(now, budget)
	f, when = s.wheel.held, s.wheel.heldWhen
	s.wheel.held = nil
	if f != nil {
		s.counts.late(now - when)
		return f, when, true
	}
	next, ok := s.wheel.Next()
	return nil, 0, ok && next <= now
}

// call runs a callback and survives its panic.
func (s *Scheduler) call(f func()) {
	defer func() {
		if v := recover(); v != nil {
			s.report(v, debug.Stack())
		}
	}()
	f()
}

func (s *Scheduler) report(v any, stack []byte) {
	s.mu.Lock()
	s.counts.panics++
	s.mu.Unlock()
	if s.cfg.OnPanic == nil {
		log.Printf("timing: callback panicked: %v\n%s", v, stack)
		return
	}
	defer func() {
		if v := recover(); v != nil {
			log.Printf("timing: OnPanic panicked: %v", v)
		}
	}()
	s.cfg.OnPanic(v, stack)
}

// handover is a callback on its way through the Executor.
type handover struct {
	f    func()
	when time.Duration
}

// handOver gives a callback to the Executor.
func (s *Scheduler) handOver(f func(), when time.Duration) {
	h := &handover{f, when}
	s.mu.Lock()
	s.waiting[h] = struct{}{}
	s.mu.Unlock()
	s.call(func() { s.cfg.Executor(func() { s.runHandover(h) }) })
}

// runHandover runs on the Executor. It does nothing if Stop has returned the callback as pending.
func (s *Scheduler) runHandover(h *handover) {
	s.mu.Lock()
	_, ok := s.waiting[h]
	delete(s.waiting, h)
	s.mu.Unlock()
	if ok {
		s.call(h.f)
	}
}
