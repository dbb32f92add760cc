// Package mailbox is the queue of what other goroutines want a loop to do.
package mailbox

import (
	"errors"
	"sync"
	"time"
)

// Reasons why a Mailbox takes nothing. Package loop shows them to its users.
var (
	ErrFull   = errors.New("loop: mailbox full")
	ErrClosed = errors.New("loop: server closed")
)

// keep is for how many tasks a mailbox keeps room. Room beyond that, which a storm needed, is the
// garbage collector's.
const keep = 4096

// A Mailbox is one queue for all senders, so that what one of them puts stays in order. Its owner,
// one goroutine, takes all of it at once and goes through that without the lock, as muduo's
// EventLoop does. Tasks that it has taken and not run count as waiting.
type Mailbox[T any] struct {
	clock func() time.Duration

	mu     sync.Mutex
	queue  []T
	puts   uint64        // tasks that were put
	urgent int           // of these
	since  time.Duration // when the first of the queue was put
	taken  int           // of the last batch, as far as the owner has told
	spared int           // urgent ones of these, at most
	max    int
	closed bool

	batch []T           // the owner's: what was taken
	next  int           // the next one of it
	age   time.Duration // when the first of it was put
}

// New returns a mailbox in which max tasks may wait, whose age is told by clock.
func New[T any](max int, clock func() time.Duration) *Mailbox[T] {
	return &Mailbox[T]{max: max, clock: clock}
}

// Put appends t, from any goroutine. An urgent one is taken though the mailbox is full, and takes
// up nobody's room. Tasks are numbered: the one after number n is n+1.
func (m *Mailbox[T]) Put(t T, urgent bool) (number uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return 0, ErrClosed
	case urgent:
		m.urgent++
	case len(m.queue)-m.urgent+m.taken-m.spared >= m.max:
		return 0, ErrFull
	}
	if len(m.queue) == 0 {
		m.since = m.clock()
	}
	m.queue = append(m.queue, t)
	m.puts++
	return m.puts, nil
}

// Len returns how many tasks wait. Any goroutine may call it.
func (m *Mailbox[T]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.queue) + m.taken
}

// Close refuses new tasks. Those that wait still wait. Any goroutine may call it.
func (m *Mailbox[T]) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
}

// Refill takes the queue as the next batch, if the last one is empty, and returns how many tasks
// there are then, and when the first of those was put. It is the owner's, and so is all below.
func (m *Mailbox[T]) Refill() (n int, since time.Duration) {
	if n = m.Left(); n > 0 {
		return n, m.age
	}
	if cap(m.batch) > keep { // there was a storm
		m.batch = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batch, m.queue = m.queue, m.batch[:0]
	m.next, m.taken, m.age = 0, len(m.batch), m.since
	m.spared, m.urgent = m.urgent, 0
	return len(m.batch), m.age
}

// Next returns the next task of the batch, which must not be empty, and forgets it.
func (m *Mailbox[T]) Next() (t T) {
	t, m.batch[m.next] = m.batch[m.next], t // what it refers to may be large
	m.next++
	return t
}

// Back makes t, which Next has returned last, the next task again.
func (m *Mailbox[T]) Back(t T) {
	m.next--
	m.batch[m.next] = t
}

// Left returns how many tasks of the batch are left.
func (m *Mailbox[T]) Left() int { return len(m.batch) - m.next }

// Settle tells others how many tasks are left, which is what counts against the limit.
func (m *Mailbox[T]) Settle() {
	m.mu.Lock()
	m.taken = m.Left()
	m.spared = min(m.spared, m.taken)
	m.mu.Unlock()
}
