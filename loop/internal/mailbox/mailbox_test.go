package mailbox

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
)

func newTest(max int) (*Mailbox[int], *time.Duration) {
	now := new(time.Duration)
	return New[int](max, func() time.Duration { return *now }), now
}

func TestOrderAndAge(t *testing.T) {
	m, now := newTest(10)
	if n, _ := m.Refill(); n != 0 {
		t.Errorf("%d tasks in a new mailbox", n)
	}
	for i := range 3 {
		*now = time.Duration(i + 5)
		if _, err := m.Put(i, false); err != nil {
			t.Fatal(err)
		}
	}
	n, since := m.Refill()
	if n != 3 || since != 5 {
		t.Errorf("%d tasks since %d, want 3 since 5", n, since)
	}
	*now = 20
	_, _ = m.Put(3, false)
	for i := range 3 {
		if got := m.Next(); got != i || m.Left() != 2-i {
			t.Errorf("task %d, %d left; want %d, %d", got, m.Left(), i, 2-i)
		}
	}
	if n, since := m.Refill(); n != 1 || since != 20 || m.Next() != 3 {
		t.Errorf("%d tasks since %d", n, since)
	}
}

// What was taken and not gone through counts as waiting; urgent tasks come in all the same.
func TestLimit(t *testing.T) {
	m, _ := newTest(2)
	_, _ = m.Put(1, false)
	_, _ = m.Put(2, false)
	if _, err := m.Put(3, false); !errors.Is(err, ErrFull) || m.Len() != 2 {
		t.Errorf("a third of two: %v, %d wait", err, m.Len())
	}
	m.Refill()
	m.Next()
	if _, err := m.Put(3, false); !errors.Is(err, ErrFull) {
		t.Errorf("while the batch is gone through: %v", err)
	}
	if _, err := m.Put(4, true); err != nil || m.Len() != 3 {
		t.Errorf("an urgent one: %v, %d wait", err, m.Len())
	}
	if n, _ := m.Refill(); n != 1 {
		t.Errorf("a batch of %d was begun before the last one was done", n)
	}
	m.Next()
	m.Settle()
	if _, err := m.Put(5, false); err != nil || m.Len() != 2 {
		t.Errorf("when there is room: %v, %d wait", err, m.Len())
	}
}

// Urgent tasks take up nobody's room, whether they wait, are gone through, or have been.
func TestUrgentTasksTakeNoRoom(t *testing.T) {
	m, _ := newTest(1)
	_, _ = m.Put(1, true)
	if _, err := m.Put(2, false); err != nil {
		t.Fatalf("beside an urgent one that waits: %v", err)
	}
	full := func(when string) {
		t.Helper()
		if _, err := m.Put(0, false); !errors.Is(err, ErrFull) {
			t.Errorf("%s: %v", when, err)
		}
	}
	full("a second one")
	m.Refill()
	full("when both are gone through")
	m.Next()
	m.Next()
	m.Settle()
	_, _ = m.Put(3, true)
	m.Refill()
	m.Next()
	if _, err := m.Put(4, false); err != nil {
		t.Errorf("while an urgent one runs: %v", err)
	}
	full("after that")
	m.Settle()
	full("when it is done")
}

// What is in a mailbox when it is closed stays in it.
func TestClose(t *testing.T) {
	m, _ := newTest(2)
	_, _ = m.Put(1, false)
	m.Close()
	if _, err := m.Put(2, true); !errors.Is(err, ErrClosed) {
		t.Errorf("Put after Close: %v", err)
	}
	if n, _ := m.Refill(); n != 1 || m.Next() != 1 {
		t.Errorf("%d tasks are left", n)
	}
}

// A storm's memory is given up, that of usual batches is used again.
func TestMemory(t *testing.T) {
	m, _ := newTest(1 << 20)
	run := func(n int) {
		for i := range n {
			_, _ = m.Put(i, false)
		}
		for range n {
			m.Refill()
			m.Next()
		}
		m.Settle()
	}
	run(10 * keep)
	run(1)
	run(1)
	if cap(m.batch) > keep || cap(m.queue) > keep {
		t.Errorf("room for %d and %d is kept", cap(m.batch), cap(m.queue))
	}
	if n := testing.AllocsPerRun(100, func() { run(50) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Nothing is lost or doubled between many senders and one owner, and each sender's order is kept.
func TestManySenders(t *testing.T) {
	const senders, each = 8, 500
	m, _ := newTest(100)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := 0; i < each; {
				if _, err := m.Put(s*each+i, i%100 == 0); err == nil {
					i++
				} else {
					runtime.Gosched() // with one processor the others would wait for the end of this one's time
				}
			}
		})
	}
	var last [senders]int
	for done := 0; done < senders*each; done++ {
		for n, _ := m.Refill(); n == 0; n, _ = m.Refill() {
			runtime.Gosched()
		}
		v := m.Next()
		m.Settle()
		if s := v / each; v%each != last[s] {
			t.Fatalf("sender %d: task %d after %d", s, v%each, last[s]-1)
		} else {
			last[s]++
		}
	}
	wg.Wait()
	if m.Len() != 0 {
		t.Errorf("%d are left", m.Len())
	}
}

// Tasks that were put one after the other, whoever put them, have numbers that follow each other.
// One that is put back is the next again, and has not left.
func TestNumbersAndBack(t *testing.T) {
	m, _ := newTest(2)
	first, _ := m.Put(1, false)
	second, _ := m.Put(2, true)
	third, _ := m.Put(3, false)
	if _, err := m.Put(4, false); err == nil {
		t.Error("it is not full")
	}
	if second != first+1 || third != second+1 {
		t.Errorf("numbers %d, %d, %d", first, second, third)
	}
	m.Refill()
	for range 3 {
		m.Back(m.Next())
	}
	if got := m.Next(); got != 1 || m.Left() != 2 {
		t.Errorf("%d is next, and %d are left behind it", got, m.Left())
	}
	m.Settle()
	if fourth, err := m.Put(5, false); err != nil || fourth != third+1 {
		t.Errorf("number %d, %v", fourth, err)
	}
}
