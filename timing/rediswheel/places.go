package rediswheel

import "sync"

// Places limits how many tasks run at once across queues. Runs of several queues in one process
// share it through Config.Places and Config.Weight. A queue with enough tasks gets at least its
// share by weight, and any places that others do not need. If another queue occupies a place of
// that share, the place comes back when its task ends. Queues whose share is less than one place
// take turns. Any goroutine may use Places.
type Places struct {
	lock   sync.Mutex
	total  int
	weight int     // of all shares
	turn   float64 // the highest turn of the shares that took places; new shares begin with it
	shares map[*share]struct{}
}

// NewPlaces returns a Places with n places. It panics unless n is positive.
func NewPlaces(n int) *Places {
	if n <= 0 {
		panic("rediswheel: NewPlaces of less than one place")
	}
	return &Places{total: n, shares: make(map[*share]struct{})}
}

// A share is the part of the places of one Run.
type share struct {
	*Places
	own      int // the share's weight
	used     int
	turn     float64       // what has run in its places, divided by weight: the lowest is next
	starving bool          // it got fewer than it asked for
	freed    chan struct{} // has a token when other shares have given places back
}

func (p *Places) join(weight int) *share {
	s := &share{Places: p, own: weight, freed: make(chan struct{}, 1)}
	p.lock.Lock()
	defer p.lock.Unlock()
	p.shares[s], p.weight = struct{}{}, p.weight+weight
	return s
}

// leave gives back all places, including those of tasks whose end Redis does not know.
func (s *share) leave() {
	s.giveBack(s.used, 0)
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.shares, s)
	s.weight -= s.own
}

// guaranteed returns the number of places that the share is entitled to.
func (s *share) guaranteed() int { return max(s.total*s.own/s.weight, 1) }

// take takes up to n places. It leaves places to starving shares that have fewer than they are
// entitled to; within its own entitlement, only to those of them whose turn is earlier. A share
// that gets fewer than n places is starving until the next call.
func (s *share) take(n int) int {
	s.lock.Lock()
	defer s.lock.Unlock()
	if !s.starving { // it has not waited
		s.turn = max(s.turn, s.Places.turn)
	}
	free, wanted, before := s.total, 0, 0
	for o := range s.shares {
		free -= o.used
		if wants := o.guaranteed() - o.used; o != s && o.starving && wants > 0 {
			wanted += wants
			if o.turn < s.turn {
				before += wants
			}
		}
	}
	got := min(n, max(free-wanted, min(free-before, s.guaranteed()-s.used), 0))
	if got > 0 {
		s.Places.turn = max(s.Places.turn, s.turn)
	}
	s.used, s.starving = s.used+got, got < n
	return got
}

// giveBack gives back n places, of which runs have run tasks.
func (s *share) giveBack(n, runs int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.used, s.turn = s.used-n, s.turn+float64(runs)/float64(s.own)
	for o := range s.shares {
		if o != s && o.starving && n > 0 {
			select {
			case o.freed <- struct{}{}:
			default:
			}
		}
	}
}
