package mailbox

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"
)

func newTest(max int) (*Mailbox[int], *time.Duration) {
	now := new(time.Duration)
	return New[int](max, func() time.Duration { return *now }), now
}

func TestOrderAndAge(t *testing.T) {
	m, now := newTest(10)
	if n, _ := m.NextBatch(); n != 0 {
		t.Errorf("%d tasks in a new mailbox", n)
	}
	for i := range 3 {
		*now = time.Duration(i + 5)
		if number, waiting, err := m.Put(i); number != uint64(i+1) || waiting != i+1 || err != nil {
			t.Errorf("Put %d = %d, %d, %v, want %d, %d, nil", i, number, waiting, err, i+1, i+1)
		}
	}
	n, since := m.NextBatch()
	if n != 3 || since != 5 {
		t.Errorf("%d tasks since %d, want 3 since 5", n, since)
	}
	*now = 20
	_, _, _ = m.Put(3)
	for i := range 3 {
		if got := m.Next(); got != i || m.BatchLen() != 2-i {
			t.Errorf("task %d, %d left; want %d, %d", got, m.BatchLen(), i, 2-i)
		}
	}
	if n, since := m.NextBatch(); n != 1 || since != 20 || m.Next() != 3 {
		t.Errorf("%d tasks since %d", n, since)
	}
}

// What is put together follows what was there, over the ends of chunks.
func TestPutAll(t *testing.T) {
	m, _ := newTest(10)
	all := make([]int, 2*chunkLen+5)
	for i := range all {
		all[i] = i
	}
	_, _, _ = m.Put(-1)
	for range 2 {
		if _, _, err := m.PutAll(all, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := m.NextBatch(); n != 1+2*len(all) {
		t.Fatalf("%d tasks, want %d", n, 1+2*len(all))
	}
	for i := range 1 + 2*len(all) {
		want := -1
		if i > 0 {
			want = (i - 1) % len(all)
		}
		if got := m.Next(); got != want {
			t.Fatalf("task %d is %d, want %d", i, got, want)
		}
	}
	if waiting, _, err := m.PutAll(all[:2], 0, nil); waiting != 3+2*len(all) || err != nil {
		t.Errorf("PutAll = %d, %v, want %d, nil", waiting, err, 3+2*len(all))
	}
	m.Close()
	if _, _, err := m.PutAll(all, 0, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("PutAll after Close: %v, want ErrClosed", err)
	}
}

// What was taken and has not run counts as waiting. Put goes beyond the limit.
func TestLimit(t *testing.T) {
	m, _ := newTest(2)
	try := func(when string, want error) {
		t.Helper()
		if _, err := m.TryPut(0); !errors.Is(err, want) {
			t.Errorf("TryPut %s: %v, want %v", when, err, want)
		}
	}
	try("into an empty one", nil)
	try("as the second", nil)
	try("as the third", ErrFull)
	m.NextBatch()
	m.Next()
	try("while the batch runs", ErrFull)
	if _, waiting, err := m.Put(4); waiting != 3 || err != nil {
		t.Errorf("Put into a full one = %d, %v, want 3, nil", waiting, err)
	}
	if n, _ := m.NextBatch(); n != 1 {
		t.Errorf("a batch of %d was begun before the last one was done, want 1", n)
	}
	m.Next()
	if got := m.ReportRun(); got != 1 {
		t.Errorf("%d wait, want 1", got)
	}
	try("when there is room", nil)
	if got := m.Len(); got != 2 {
		t.Errorf("%d wait, want 2", got)
	}
	m.NextBatch()
	m.Next()
	m.ReportRun()
	m.Keep(1)
	try("while one is kept", ErrFull)
	m.Keep(-1)
	try("when that has run", nil)
}

// What is in a mailbox when it is closed stays in it.
func TestClose(t *testing.T) {
	m, _ := newTest(2)
	_, _, _ = m.Put(1)
	m.Close()
	if _, _, err := m.Put(2); !errors.Is(err, ErrClosed) {
		t.Errorf("Put after Close: %v, want ErrClosed", err)
	}
	if _, err := m.TryPut(2); !errors.Is(err, ErrClosed) {
		t.Errorf("TryPut after Close: %v, want ErrClosed", err)
	}
	if n, _ := m.NextBatch(); n != 1 || m.Next() != 1 {
		t.Errorf("%d tasks are left, want 1", n)
	}
}

// A flood's memory is given up while its tasks run, that of usual batches is used again.
func TestMemory(t *testing.T) {
	m, _ := newTest(1 << 20)
	run := func(n int) {
		for i := range n {
			_, _, _ = m.Put(i)
		}
		for i := range n {
			m.NextBatch()
			if got := m.Next(); got != i {
				t.Fatalf("task %d, want %d", got, i)
			}
		}
		m.ReportRun()
	}
	const chunks = 100
	run(chunks * chunkLen)
	run(1)
	run(1)
	room := 0
	for _, c := range append(append(m.queue, m.batch...), m.spare, m.empty) {
		room += cap(c)
	}
	if room > 2*chunkLen || cap(m.queue) > 64 || cap(m.batch) > 64 {
		t.Errorf("room for %d tasks and %d and %d chunks is kept, want %d and 64", room, cap(m.queue), cap(m.batch), 2*chunkLen)
	}
	if n := testing.AllocsPerRun(100, func() { run(50) }); n > 0 {
		t.Errorf("%v allocations, want 0", n)
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
				if _, err := m.TryPut(s*each + i); err == nil {
					i++
				} else {
					runtime.Gosched() // with one processor the others would wait for the end of this one's time
				}
			}
		})
	}
	var last [senders]int
	for done := 0; done < senders*each; done++ {
		for n, _ := m.NextBatch(); n == 0; n, _ = m.NextBatch() {
			runtime.Gosched()
		}
		v := m.Next()
		m.ReportRun()
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

// Tasks that were added in a row, by whatever goroutines, have consecutive numbers. A task that is
// put back is the next again, and has not left.
func TestNumbersAndBack(t *testing.T) {
	m, _ := newTest(2)
	first, _, _ := m.Put(1)
	second, _, _ := m.Put(2)
	third, _, _ := m.Put(3)
	if second != first+1 || third != second+1 {
		t.Errorf("numbers %d, %d, %d", first, second, third)
	}
	m.NextBatch()
	for range 3 {
		m.PutBack(m.Next())
	}
	if got := m.Next(); got != 1 || m.BatchLen() != 2 {
		t.Errorf("%d is next, and %d are left behind it", got, m.BatchLen())
	}
	m.ReportRun()
	if fourth, _, err := m.Put(5); err != nil || fourth != third+1 {
		t.Errorf("number %d, %v", fourth, err)
	}
}

// Leave refuses later tasks for the connection, and puts the fence behind earlier ones.
func TestLeave(t *testing.T) {
	m, _ := newTest(10)
	here, there := new(int), new(int)
	p := unsafe.Pointer(here)
	put := func(v int) error {
		_, _, err := m.PutFor(&p, unsafe.Pointer(here), v, false)
		return err
	}
	if err := put(1); err != nil {
		t.Errorf("before: %v", err)
	}
	moves := m.Moves()
	if fenced := m.Leave(func() { p = unsafe.Pointer(there) }, -1); !fenced {
		t.Error("a task waits, and there is no fence")
	}
	if err := put(2); err != ErrMoved {
		t.Errorf("after: %v, want %v", err, ErrMoved)
	}
	_, moved, err := m.PutAll([]int{3, 4, 5}, moves, func(v int) bool { return v != 4 })
	if err != nil || len(moved) != 1 || moved[0] != 4 {
		t.Errorf("PutAll returns %v, %v, want [4]", moved, err)
	}
	n, _ := m.NextBatch()
	for i, want := range []int{1, -1, 3, 5} {
		if got := m.Next(); i >= n || got != want {
			t.Fatalf("task %d of %d is %d, want %d", i, n, got, want)
		}
	}
	if fenced := m.Leave(func() {}, -1); fenced {
		t.Error("nothing waits, and there is a fence")
	}
}
