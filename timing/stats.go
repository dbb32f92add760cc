package timing

// Stats says what a [Wheel] has done and what it holds. Counters start at 0 and only grow.
type Stats struct {
	Pending  int            // timers, a periodic one counting once; as Len
	Levels   [numLevels]int // of these, how many are on each level; the lowest has the nearest deadlines
	Overdue  int            // of these, how many were due before they were added and wait for the next Advance
	Fired    uint64         // callbacks run
	Skipped  uint64         // periods of periodic timers that were missed and passed over
	Cascaded uint64         // steps of timers from one level to a lower one
}

// Stats returns the wheel's numbers. Counting the levels takes time in proportion to the number of
// timers, though it looks at 64 of them at once: something to do every second, not for every
// message.
func (w *Wheel) Stats() Stats {
	s := Stats{
		Pending:  w.Len(),
		Overdue:  w.liveIn(&w.late),
		Fired:    w.fired,
		Skipped:  w.skipped,
		Cascaded: w.cascaded,
	}
	w.each(func(li *list) {
		if li.number != overdue {
			s.Levels[levelOfList(int(li.number))] += w.liveIn(li)
		}
	})
	return s
}

// Fired returns how many callbacks the wheel has run: Stats().Fired in constant time.
func (w *Wheel) Fired() uint64 { return w.fired }
