package taskloop

import (
	"sync"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A Queue is what a loop is to do. The loop calls Next, and any goroutine the other methods. It
// implements engine.Executor.
type Queue struct {
	wake  func()
	ended chan struct{}

	mu    sync.Mutex
	tasks []task
	over  bool
}

// A task is done, or lost if the loop ends before.
type task struct{ run, lost func() }

// NewQueue returns an empty queue. wake has the loop call Next soon, if it waits.
func NewQueue(wake func()) *Queue { return &Queue{wake: wake, ended: make(chan struct{})} }

var _ engine.Executor = (*Queue)(nil)

// Execute implements engine.Executor.
func (q *Queue) Execute(f func()) { q.Put(f, nil) }

// Put has run called on the loop. If that ends before, lost is called on a goroutine, unless it is
// nil.
func (q *Queue) Put(run, lost func()) {
	q.mu.Lock()
	over := q.over
	if !over {
		q.tasks = append(q.tasks, task{run, lost})
	}
	q.mu.Unlock()
	switch {
	case !over:
		q.wake()
	case lost != nil:
		go lost()
	}
}

// Len returns how much there is to do.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tasks)
}

// Next returns what comes next, or nil: there is nothing, or the loop has ended.
func (q *Queue) Next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tasks) == 0 {
		return nil
	}
	f := q.tasks[0].run
	q.tasks[0] = task{}
	q.tasks = q.tasks[1:]
	return f
}

// Ended implements engine.Executor.
func (q *Queue) Ended() <-chan struct{} { return q.ended }

// End says that the loop has ended, or is to end. It may be called again.
func (q *Queue) End() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return
	}
	q.over = true
	close(q.ended)
	for _, t := range q.tasks {
		if t.lost != nil {
			go t.lost()
		}
	}
	q.tasks = nil
}

// Fence orders memory: the loop sees, in what it does from now on, what the caller has done.
func (q *Queue) Fence() {
	q.mu.Lock()
	//lint:ignore SA2001 what matters is the order
	q.mu.Unlock()
}
