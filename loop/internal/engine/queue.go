package engine

import (
	"errors"
	"sync"
)

// ErrEnded says that a loop takes nothing any more.
var ErrEnded = errors.New("loop: the event loop has ended")

// A Queue holds the tasks that other goroutines, and the loop itself, have for a loop. The loop
// calls Next, and any goroutine the other methods.
type Queue struct {
	wake  func()
	ended chan struct{}

	mu    sync.Mutex
	tasks []task
	over  bool
}

// A task is done, or lost if the loop ends before.
type task struct{ run, lost func() }

// NewQueue returns an empty queue. wake makes the loop call Next soon, if it waits.
func NewQueue(wake func()) *Queue { return &Queue{wake: wake, ended: make(chan struct{})} }

// Execute runs f on the loop, unless that has ended.
func (q *Queue) Execute(f func()) { q.Put(f, nil) }

// Put runs run on the loop. If the loop ends before, lost, unless it is nil, runs on a goroutine of
// its own.
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

// Len returns how many tasks wait.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.tasks)
}

// Next takes the next task out of the queue. It returns nil if there is none.
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

// Ended returns a channel that is closed when the loop has ended.
func (q *Queue) Ended() <-chan struct{} { return q.ended }

// End loses the tasks that wait, and all that come: the loop has ended, or will run none of them.
// It may be called again.
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
