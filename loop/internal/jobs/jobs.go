// Package jobs runs what would block a loop: a bounded number of goroutines for the jobs of many
// owners, which take turns.
package jobs

import (
	"context"
	"errors"
	"sync"
	"time"
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
	panicked func(v any) // on the job's goroutine; v is nil if it called runtime.Goexit

	// The pool's lock guards the rest.
	first, last *job
	waiting     int
	busy        bool   // in the pool's list, or with a goroutine
	next        *Queue // in that list
}

// A job is one function of a queue.
type job struct {
	run  func(ctx context.Context)
	next *job // of the same queue
}

// NewQueue returns a queue. A panic in a job of it, or a runtime.Goexit, is told to panicked.
func (p *Pool) NewQueue(panicked func(v any)) *Queue {
	q := &Queue{pool: p, panicked: panicked}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// Put has run called on a goroutine, with a context that is done when the queue ends. Any goroutine
// may call it. The errors are ErrFull and ErrClosed.
func (q *Queue) Put(run func(ctx context.Context)) error {
	return q.pool.put(q, &job{run: run})
}

// End tells the job that runs, by its context, and forgets the others.
func (q *Queue) End() {
	q.pool.mu.Lock()
	q.pool.drop(q)
	q.pool.mu.Unlock()
	q.cancel()
}

// A Pool is the goroutines. Each lives as long as it finds something to do. A pool that keeps its
// goroutines would save half a microsecond for a job that blocks anyway, and would have something
// to tend: ants wakes up twice a second for that, while an idle server should not.
type Pool struct {
	mu          sync.Mutex
	max         int
	maxWaiting  int
	first, last *Queue // queues with jobs that wait, and none that runs
	waiting     int    // jobs
	running     int    // goroutines
	closed      bool
	done        chan struct{} // closed when closed and nothing runs
}

// Init sets how many jobs run at a time, and how many others may wait: none of either at first.
func (p *Pool) Init(max, maxWaiting int) { p.max, p.maxWaiting = max, maxWaiting }

// put queues a job, and starts a goroutine for it if there may be one more.
func (p *Pool) put(q *Queue, j *job) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case q.waiting >= min(p.maxWaiting-p.waiting, PerQueue):
		return ErrFull
	}
	if q.last == nil {
		q.first = j
	} else {
		q.last.next = j
	}
	q.last = j
	q.waiting++
	p.waiting++
	if !q.busy {
		q.busy = true
		p.enlist(q)
		if p.running < p.max {
			p.running++
			go p.run()
		}
	}
	return nil
}

// enlist puts q at the end of the list. p.mu is held.
func (p *Pool) enlist(q *Queue) {
	if p.last == nil {
		p.first = q
	} else {
		p.last.next = q
	}
	p.last = q
}

// drop forgets the jobs of q that have not begun. p.mu is held.
func (p *Pool) drop(q *Queue) {
	p.waiting -= q.waiting
	q.first, q.last, q.waiting = nil, nil, 0
}

// run is one goroutine.
func (p *Pool) run() {
	q, j := p.take(nil)
	// Only Goexit ends it early: another one goes on, after the queue at hand.
	defer func() {
		if j != nil {
			p.release(q)
			go p.run()
		}
	}()
	for j != nil {
		q.do(j)
		q, j = p.take(q)
	}
}

// take puts a queue with more jobs behind the others, and returns the next job, or nil: the
// goroutine must end then.
func (p *Pool) take(done *Queue) (*Queue, *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(done)
	for p.first != nil {
		q := p.first
		if p.first = q.next; p.first == nil {
			p.last = nil
		}
		q.next = nil
		if p.closed {
			p.drop(q)
		}
		j := q.first
		if j == nil { // dropped
			q.busy = false
			continue
		}
		if q.first = j.next; q.first == nil {
			q.last = nil
		}
		q.waiting--
		p.waiting--
		return q, j
	}
	p.running--
	if p.closed && p.running == 0 {
		close(p.done)
	}
	return nil, nil
}

func (p *Pool) release(q *Queue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(q)
}

func (p *Pool) releaseLocked(q *Queue) {
	switch {
	case q == nil:
	case q.first == nil:
		q.busy = false
	default:
		p.enlist(q)
	}
}

// do runs a job, unless its queue has ended meanwhile.
func (q *Queue) do(j *job) {
	if q.ctx.Err() != nil {
		return
	}
	returned := false
	defer func() {
		if !returned {
			q.panicked(recover())
		}
	}()
	j.run(q.ctx)
	returned = true
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
