package timing

// runDue runs the next callback if it is due. The lock is not held while it runs, and nothing else
// is taken from the wheel before it returns: so it can remove its neighbours.
func (s *Scheduler) runDue() bool {
	f, more := s.takeNext()
	if f != nil {
		s.call(f)
	}
	return more
}

// takeNext takes a due callback from the wheel, or what gives it to the Executor. f may be nil
// though there is more: the wheel's budget has run out, which lets others have the lock.
func (s *Scheduler) takeNext() (f func(), more bool) {
	const budget = 256
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, false
	}
	now := s.now()
	skipped := s.wheel.skipped
	s.wheel.Advance(now, budget)
	d := s.wheel.held
	s.wheel.held = due{}
	if d.f != nil && s.wheel.Pending(d.timer) { // a periodic one, which has been filed anew
		s.counts.scheduled += 1 + s.wheel.skipped - skipped
	}
	if d.f == nil {
		next, ok := s.wheel.Next()
		return nil, ok && next <= now
	}
	if s.cfg.Executor == nil {
		s.counts.fired++
		s.counts.late(now - d.when)
		return d.f, true
	}
	if s.waiting[d.timer] != nil { // a periodic timer's last call
		s.wheel.skipped++
		return nil, true
	}
	s.counts.late(now - d.when)
	return s.handOver(d), true
}

// handOver returns what gives a callback to the Executor. From now on, until it is started, it can
// be stopped, and Stop returns it as pending.
func (s *Scheduler) handOver(d due) func() {
	s.waiting[d.timer] = &d // d is by value, so that only what waits is on the heap
	return func() {
		taken := false
		defer func() {
			if !taken { // it has panicked
				s.claim(&d, &s.counts.refused)
			}
		}()
		s.cfg.Executor(func() {
			if s.claim(&d, &s.counts.fired) {
				s.call(d.f)
			}
		})
		taken = true
	}
}

// claim reports whether a callback was waiting for the Executor, which it does no longer, and
// counts it. False if it has been started, or stopped, or Stop has returned it as pending.
func (s *Scheduler) claim(d *due, counter *uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[d.timer] != d {
		return false
	}
	delete(s.waiting, d.timer)
	*counter++
	return true
}
