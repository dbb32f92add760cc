// Package jobs runs what would block a loop: a bounded number of goroutines for the jobs of many
// owners, which take turns.
package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// Reasons why a Pool takes no job. Package loop shows the first to its users.
var (
	ErrFull   = errors.New("loop: offload queue full")
	ErrClosed = errors.New("jobs: the pool has stopped")
)

// PerQueue is how many jobs of one Queue may wait, and never more than there is room left for
// others then. So one that is flooded gets half of the room at most, two get two thirds, and so on:
// the dynamic threshold of Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998.
const PerQueue = 1024

// A Queue is the jobs of one owner, such as a connection. They run one after another.
type Queue struct {
	pool     *Pool
	ctx      context.Context
	cancel   context.CancelFunc
	panicked func(v any) // see NewQueue; on the job's goroutine

	// The pool's lock guards the rest.
	jobs []func(ctx context.Context) // that wait
	busy bool                        // in the pool's list, or with a goroutine
}

// NewQueue returns a queue. It calls panicked with the value of a job's panic, or with nil if the
// job has called runtime.Goexit.
func (p *Pool) NewQueue(panicked func(v any)) *Queue {
	q := &Queue{pool: p, panicked: panicked}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// Put runs run on a goroutine of the pool, with a context that is done when the queue ends. Any
// goroutine may call it. The errors are ErrFull and ErrClosed.
func (q *Queue) Put(run func(ctx context.Context)) error {
	p := q.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case len(q.jobs) >= min(p.maxWaiting-p.waiting, PerQueue):
		return ErrFull
	}
	q.jobs = append(q.jobs, run)
	p.waiting++
	if !q.busy {
		q.busy = true
		p.ready = append(p.ready, q)
		if p.running < p.max {
			p.running++
			go p.run()
		}
	}
	return nil
}

// End cancels the context of the job that runs, and forgets the others.
func (q *Queue) End() {
	q.pool.mu.Lock()
	q.pool.drop(q)
	q.pool.mu.Unlock()
	q.cancel()
}

// A Pool is the goroutines. Each lives as long as it finds a job. A pool that keeps its goroutines
// would save half a microsecond for a job that blocks anyway, and would have to wake up to end idle
// ones: ants does so twice a second, but an idle server should sleep.
type Pool struct {
	mu         sync.Mutex
	max        int
	maxWaiting int
	ready      []*Queue // with jobs that wait, and none that runs
	waiting    int      // jobs
	running    int      // goroutines
	closed     bool
	done       chan struct{} // closed when closed and nothing runs
}

// Init sets how many jobs run at a time, and how many others may wait: none of either at first.
func (p *Pool) Init(max, maxWaiting int) { p.max, p.maxWaiting = max, maxWaiting }

// drop forgets the jobs of q that have not begun. p.mu is held.
func (p *Pool) drop(q *Queue) {
	p.waiting -= len(q.jobs)
	q.jobs = nil
}

// run is one goroutine.
func (p *Pool) run() {
	q, job := p.take(nil)
	// Only Goexit ends it early: then another goroutine goes on, after releasing the queue.
	defer func() {
		if job != nil {
			p.mu.Lock()
			p.release(q)
			p.mu.Unlock()
			go p.run()
		}
	}()
	for job != nil {
		if q.ctx.Err() == nil { // its queue has not ended meanwhile
			goroutine.Guard(func() { job(q.ctx) }, q.panicked)
		}
		q, job = p.take(q)
	}
}

// take releases a queue, and returns the next job, or nil: the goroutine must end then.
func (p *Pool) take(done *Queue) (*Queue, func(ctx context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(done)
	for len(p.ready) > 0 {
		q := p.ready[0]
		p.ready[0] = nil
		p.ready = p.ready[1:]
		if p.closed {
			p.drop(q)
		}
		if len(q.jobs) == 0 { // dropped
			q.busy = false
			continue
		}
		job := q.jobs[0]
		q.jobs[0] = nil
		q.jobs = q.jobs[1:]
		p.waiting--
		return q, job
	}
	p.running--
	if p.closed && p.running == 0 {
		close(p.done)
	}
	return nil, nil
}

// release puts a queue with more jobs after the others. p.mu is held.
func (p *Pool) release(q *Queue) {
	switch {
	case q == nil:
	case len(q.jobs) == 0:
		q.jobs, q.busy = nil, false
	default:
		p.ready = append(p.ready, q)
	}
}

// Stop refuses new jobs, drops those that wait and gives those that run some time. It returns how
// many goroutines are left. It may be called once.
func (p *Pool) Stop(timeout time.Duration) int {
	p.mu.Lock()
	p.closed = true
	p.done = make(chan struct{})
	if p.running == 0 {
		close(p.done)
	}
	p.mu.Unlock()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// Done is closed when no job runs any more. It is nil before Stop has been called.
func (p *Pool) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// Counts returns how many jobs wait, and how many run.
func (p *Pool) Counts() (waiting, running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting, p.running
}
