package loop

import (
	"sync"
	"time"
)

// A task is a function for the loop: f for the loop itself, or told for a connection.
type task struct {
	f    func()
	told func(*Conn)
	c    *Conn
}

// mailbox is the queue of what other goroutines want a loop to do: one queue, so that Post and Tell keep their order.
// The loop takes all of it at once and runs that without the lock, as muduo's EventLoop does.
type mailbox struct {
	mu     sync.Mutex
	clock  func() time.Duration
	queue  []task
	since  time.Duration // when the first of the queue was put
	taken  int           // of the last batch, counted until the loop comes back
	max    int
	closed bool
}

// put appends t. The framework's own tasks are urgent: no limit stops them.
func (m *mailbox) put(t task, urgent bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return ErrServerClosed
	case !urgent && len(m.queue)+m.taken >= m.max:
		return ErrMailboxFull
	}
	if len(m.queue) == 0 {
		m.since = m.clock()
	}
	m.queue = append(m.queue, t)
	return nil
}

// take exchanges the queue for an empty slice, and tells when the first task was put, if there is one.
func (m *mailbox) take(empty []task) ([]task, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	batch := m.queue
	m.queue, m.taken = empty, len(batch)
	return batch, m.since
}

// left tells how many of the last batch are still to be run.
func (m *mailbox) left(n int) {
	m.mu.Lock()
	m.taken = n
	m.mu.Unlock()
}

func (m *mailbox) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.queue) + m.taken
}

// close refuses what comes from now on. What is in the queue stays there.
func (m *mailbox) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
}
