package rediswheel

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// A gatherer has tasks that are added at the same time by many goroutines share scripts: those that
// come while one is on its way go along with the next. Who comes alone does not wait.
type gatherer struct {
	q       *Queue
	lock    sync.Mutex
	flights int       // scripts on their way
	sent    time.Time // when the last of them was
	waiting []*adding
}

// An adding is one Add that goes along with others.
type adding struct {
	entry
	done chan error
}

// gatherFor is for how long after a script was sent those who come wait for its answer. They then
// share the next script; if Redis is far away, that does not wait for the answer.
const gatherFor = time.Millisecond

// add adds one task.
func (g *gatherer) add(ctx context.Context, e entry) error {
	g.lock.Lock()
	follows := g.flights > 0 && time.Since(g.sent) < gatherFor
	if !follows && len(g.waiting) == 0 {
		g.depart()
		g.lock.Unlock()
		defer g.land(ctx, 1)
		return g.q.addAll(ctx, []entry{e})[0]
	}
	a := &adding{e, make(chan error, 1)}
	g.waiting = append(g.waiting, a)
	if !follows {
		go g.fly(ctx, g.depart())
	}
	g.lock.Unlock()
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// depart takes those who wait. g.lock is held.
func (g *gatherer) depart() []*adding {
	along := g.waiting
	g.waiting = nil
	g.flights++
	g.sent = time.Now()
	return along
}

// land has those who came meanwhile go along with the next, and those too who now have their answer,
// if they were several: who add again at once are one group with the others then, and not two in turns.
func (g *gatherer) land(ctx context.Context, n int) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if n > 1 || len(g.waiting) > 0 {
		g.sent = time.Now()
		go g.follow(ctx)
	} else {
		g.flights--
	}
}

// follow sends those who wait, in place of a script that is answered.
func (g *gatherer) follow(ctx context.Context) {
	g.linger()
	g.lock.Lock()
	g.flights--
	if len(g.waiting) == 0 { // nobody came, or somebody has taken them along
		g.lock.Unlock()
		return
	}
	along := g.depart()
	g.lock.Unlock()
	g.fly(ctx, along)
}

// How long those who wait let others come: as long as somebody does, and not for long.
const (
	lingerFor   = 20 * time.Microsecond // after the last who came
	lingerMost  = 100 * time.Microsecond
	lingerTurns = 1000 // in a bubble of testing/synctest no time passes meanwhile
)

// linger yields until nobody else comes. It does not sleep: that takes a millisecond at least.
func (g *gatherer) linger() {
	began := time.Now()
	last, came := -1, began
	for range lingerTurns {
		g.lock.Lock()
		n := len(g.waiting)
		g.lock.Unlock()
		now := time.Now()
		if n != last {
			last, came = n, now
		}
		if n >= maxBatch || now.Sub(came) > lingerFor || now.Sub(began) > lingerMost {
			return
		}
		runtime.Gosched()
	}
}

// fly adds what several wait for. Each of them may give up, and the others do not: the context is
// there for what it holds.
func (g *gatherer) fly(ctx context.Context, along []*adding) {
	ctx = context.WithoutCancel(ctx)
	defer g.land(ctx, len(along))
	entries := make([]entry, len(along))
	for i, a := range along {
		entries[i] = a.entry
	}
	for i, err := range g.q.addAll(ctx, entries) {
		along[i].done <- err
	}
}
