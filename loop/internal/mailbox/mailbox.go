// Package mailbox is the queue of tasks that other goroutines post to a loop.
package mailbox

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Reasons why a Mailbox takes nothing. Package loop shows them to its users.
var (
	ErrFull   = errors.New("loop: mailbox full")
	ErrClosed = errors.New("loop: server closed")
	ErrMoved  = errors.New("loop: moved to another mailbox") // which it does not show
)

// chunkLen is how many tasks are stored together. A queue of many chunks grows without copying, and
// shrinks as its tasks run.
const chunkLen = 4096

// A Mailbox is one queue for all senders, so that what one of them puts stays in order. Its owner,
// one goroutine, takes all of it at once and runs that without the lock, as muduo's EventLoop does.
// Tasks that it has taken and not run count as waiting.
type Mailbox[T any] struct {
	clock func() time.Duration
	max   int

	mu     sync.Mutex
	queue  [][]T         // chunks
	puts   uint64        // tasks that were put
	done   uint64        // of these, the ones that had run at the last ReportRun
	kept   int           // that have run, and wait elsewhere
	since  time.Duration // when the first of the queue was put
	spare  []T           // an empty chunk
	closed bool
	moves  atomic.Uint64 // calls of Leave; changed with mu

	_ [64]byte // the owner's fields are in a cache line that those who put do not touch

	batch [][]T         // the owner's: what was taken
	first int           // the first chunk that has tasks
	next  int           // the next one of those
	taken uint64        // tasks, with those of the batch
	ran   uint64        // of these
	age   time.Duration // when the first of the batch was put
	empty []T           // a chunk for spare
	seen  int           // how many tasks waited at its last look
}

// New returns a mailbox that is full when it holds max tasks. It measures their age by clock.
func New[T any](max int, clock func() time.Duration) *Mailbox[T] {
	return &Mailbox[T]{max: max, clock: clock}
}

// Put appends t, from any goroutine, and returns how many tasks wait then, t included: more than
// max, if the mailbox was full. Tasks are numbered: the one after number n is n+1.
func (m *Mailbox[T]) Put(t T) (number uint64, waiting int, err error) {
	return m.PutFor(nil, nil, t, false)
}

// TryPut is Put that returns ErrFull in place of going beyond max.
func (m *Mailbox[T]) TryPut(t T) (number uint64, err error) {
	number, _, err = m.PutFor(nil, nil, t, true)
	return number, err
}

// PutFor is Put, or TryPut if it is bounded, for somebody who may have moved to another mailbox: it
// returns ErrMoved unless *home is here, which Leave may have changed. A nil home does not move.
func (m *Mailbox[T]) PutFor(home *unsafe.Pointer, here unsafe.Pointer, t T, bounded bool) (number uint64, waiting int, err error) {
	m.mu.Lock() // no defer: nothing below panics, and it would cost a tenth of a Put
	switch waiting = int(m.puts-m.done) + m.kept; {
	case home != nil && atomic.LoadPointer(home) != here:
		m.mu.Unlock()
		return 0, 0, ErrMoved
	case m.closed:
		m.mu.Unlock()
		return 0, 0, ErrClosed
	case bounded && waiting >= m.max:
		m.mu.Unlock()
		return 0, 0, ErrFull
	}
	if last := len(m.queue) - 1; last >= 0 && len(m.queue[last]) < chunkLen { // last inlined, for a tenth of a Put
		m.queue[last] = append(m.queue[last], t)
	} else {
		chunk := m.last()
		*chunk = append(*chunk, t)
	}
	m.puts++
	number = m.puts
	m.mu.Unlock()
	return number, waiting + 1, nil
}

// Leave has somebody move away: store, which changes his home, is called under the lock. If tasks
// wait, which may be his, fence is put behind them, and Leave reports that. It is the owner's.
func (m *Mailbox[T]) Leave(store func(), fence T) (fenced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.moves.Add(1)
	store()
	if m.puts == m.ran || m.closed { // its owner empties a closed one, and takes nothing more
		return false
	}
	last := m.last()
	*last = append(*last, fence)
	m.puts++
	return true
}

// Moves returns how often somebody has left. Any goroutine may call it.
func (m *Mailbox[T]) Moves() uint64 { return m.moves.Load() }

// PutAll is Put of several tasks, with nothing between them. They are copied. If somebody has left
// since Moves returned moves, those of which here is false are returned in their order in place of
// being put.
func (m *Mailbox[T]) PutAll(ts []T, moves uint64, here func(T) bool) (waiting int, moved []T, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.moves.Load() != moves {
		var stay []T
		for _, t := range ts {
			if here(t) {
				stay = append(stay, t)
			} else {
				moved = append(moved, t)
			}
		}
		ts = stay
	}
	if m.closed {
		return 0, moved, ErrClosed
	}
	m.puts += uint64(len(ts))
	for len(ts) > 0 {
		chunk := m.last()
		n := min(len(ts), chunkLen-len(*chunk))
		*chunk, ts = append(*chunk, ts[:n]...), ts[n:]
	}
	return int(m.puts-m.done) + m.kept, moved, nil
}

// last returns the chunk of the queue that has room. m.mu is held.
func (m *Mailbox[T]) last() *[]T {
	last := len(m.queue) - 1
	if last < 0 {
		m.since = m.clock()
		m.queue, m.spare = append(m.queue, m.spare), nil
		last = 0
	} else if len(m.queue[last]) == chunkLen {
		m.queue = append(m.queue, make([]T, 0, chunkLen))
		last++
	}
	return &m.queue[last]
}

// Len returns how many tasks wait. Any goroutine may call it.
func (m *Mailbox[T]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int(m.puts - m.done)
}

// Waiting is Len with the tasks that Keep counts.
func (m *Mailbox[T]) Waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int(m.puts-m.done) + m.kept
}

// Keep has n tasks more, or less, count as waiting, though they have run: their owner keeps them for
// later. It is the owner's.
func (m *Mailbox[T]) Keep(n int) {
	m.mu.Lock()
	m.kept += n
	m.mu.Unlock()
}

// Close refuses new tasks. Those that wait still wait. Any goroutine may call it.
func (m *Mailbox[T]) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
}

// NextBatch takes the queue as the next batch, if the last one is empty, and returns how many tasks
// there are then, and when the first of those was put. It is the owner's, and so is all below.
func (m *Mailbox[T]) NextBatch() (n int, since time.Duration) {
	if n := m.BatchLen(); n > 0 {
		return n, m.age
	}
	m.drop()
	m.mu.Lock()
	defer m.mu.Unlock()
	if cap(m.batch) > 64 { // of a flood
		m.batch = nil
	}
	m.batch, m.queue = m.queue, m.batch[:0]
	if m.spare == nil {
		m.spare, m.empty = m.empty, nil
	}
	m.first, m.done, m.taken, m.age = 0, m.ran, m.puts, m.since
	m.seen = m.BatchLen()
	return m.seen, m.age
}

// Next returns the next task of the batch, which must not be empty, and forgets it.
func (m *Mailbox[T]) Next() (t T) {
	if m.next == len(m.batch[m.first]) {
		m.drop()
	}
	slot := &m.batch[m.first][m.next]
	t, *slot = *slot, t // what it refers to may be large
	m.next++
	m.ran++
	return t
}

// drop takes away the first chunk, if there is one. All of it has run.
func (m *Mailbox[T]) drop() {
	if m.next = 0; m.first < len(m.batch) {
		m.empty, m.batch[m.first] = m.batch[m.first][:0], nil
		m.first++
	}
}

// PutBack makes t, which Next has returned last, the next task again.
func (m *Mailbox[T]) PutBack(t T) {
	m.next--
	m.ran--
	m.batch[m.first][m.next] = t
}

// BatchLen returns how many tasks of the batch are left.
func (m *Mailbox[T]) BatchLen() int { return int(m.taken - m.ran) }

// ReportRun counts the tasks that have run as no longer waiting, and returns what Waiting would.
func (m *Mailbox[T]) ReportRun() (waiting int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done = m.ran
	m.seen = int(m.puts - m.done)
	return m.seen + m.kept
}

// Bytes returns how much memory the queue took when NextBatch or ReportRun was called last, in
// whole chunks: what its tasks refer to is not in it.
func (m *Mailbox[T]) Bytes() int {
	var t T
	return m.seen / chunkLen * chunkLen * int(unsafe.Sizeof(t))
}
