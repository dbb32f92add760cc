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
		defer g.land(ctx)
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

// land has those who came meanwhile go along with the next.
func (g *gatherer) land(ctx context.Context) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if len(g.waiting) > 0 {
		go g.follow(ctx)
	} else {
		g.flights--
	}
}

// follow sends those who wait, in place of a script that is answered. Those who have their answer
// now come first: if they add at once again, there is one group of all, and not two in turns.
func (g *gatherer) follow(ctx context.Context) {
	runtime.Gosched()
	g.lock.Lock()
	g.flights--
	if len(g.waiting) == 0 { // somebody has taken them along
		g.lock.Unlock()
		return
	}
	along := g.depart()
	g.lock.Unlock()
	g.fly(ctx, along)
}

// fly adds what several wait for. Each of them may give up, and the others do not: the context is
// there for what it holds.
func (g *gatherer) fly(ctx context.Context, along []*adding) {
	ctx = context.WithoutCancel(ctx)
	defer g.land(ctx)
	entries := make([]entry, len(along))
	for i, a := range along {
		entries[i] = a.entry
	}
	for i, err := range g.q.addAll(ctx, entries) {
		along[i].done <- err
	}
}
