//go:build linux

package scaletest_test

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// together is how many read events are measured as one: the clock of a thread is a system call.
const together = 8

// worstTurn is how long a turn should be at most.
const worstTurn = 2 * time.Millisecond

// kind is what a turn is about.
type kind uint8

const (
	messages kind = iota // so many read events as are measured together, or fewer
	timers               // and the mailbox
	arrival
	ended
	counting // nothing of ours: see control
)

func (k kind) String() string {
	return [...]string{"messages", "timers and mailbox", "arrival", "end", "counting"}[k]
}

// A turn is one that was measured, or several read events that were measured together.
type turn struct {
	nanos      uint32
	writes     uint16 // that the server has made in it
	kind       kind
	collecting bool // the garbage collector was at work
}

func (t turn) took() time.Duration { return time.Duration(t.nanos) }

func (t turn) String() string {
	s := fmt.Sprintf("%v of %v with %d writes", t.took(), t.kind, t.writes)
	if t.collecting {
		s += " during a collection"
	}
	return s
}

// A tally is about all turns of one sort.
type tally struct {
	busy  time.Duration
	turns int
	long  int // that were longer than they should be
	worst turn
}

// meter measures the loop by the clock of its thread, which stands still while the machine does
// something else: virtual time does not pass while code runs. The loop keeps its thread for the
// length of a turn. Without that a turn during which Go preempts it, after 10 ms of running at the
// latest, would be charged with what runs on the thread meanwhile, such as a worker of the garbage
// collector. What that has the loop itself do when it allocates is in the times.
type meter struct {
	all        tally
	collecting tally  // those of them during which the garbage collector was at work
	longest    []turn // of each millisecond of virtual time
	start      time.Time
	writes     int // that the server has made

	begun     time.Duration // of the turn that is under way
	before    int           // writes until it began
	collected bool          // the garbage collector was at work when it began
	group     int           // read events in it
}

// restart forgets what there was and measures from now on. It is called in a turn.
func (m *meter) restart() { *m = meter{longest: m.longest, start: time.Now(), begun: m.begun} }

// measure runs one turn.
func (m *meter) measure(k kind, turn func()) {
	m.flush()
	m.begin()
	turn()
	m.end(k, 1)
}

// few runs a short turn, which is measured together with others.
func (m *meter) few(c *client, p []byte) {
	if m.group == 0 {
		m.begin()
	}
	c.sink.Readable(p)
	if m.group++; m.group == together {
		m.flush()
	}
}

func (m *meter) flush() {
	if n := m.group; n > 0 {
		m.group = 0
		m.end(messages, n)
	}
}

func (m *meter) begin() {
	m.before, m.collected = m.writes, collecting.Load()
	runtime.LockOSThread()
	m.begun = threadTime()
}

func (m *meter) end(k kind, turns int) {
	used := threadTime() - m.begun
	runtime.UnlockOSThread()
	t := turn{
		nanos:      uint32(min(used, math.MaxUint32)),
		writes:     uint16(min(m.writes-m.before, math.MaxUint16)),
		kind:       k,
		collecting: m.collected || collecting.Load(),
	}
	m.all.add(t, turns)
	if t.collecting {
		m.collecting.add(t, turns)
	}
	if m.start.IsZero() {
		return
	}
	if at := int(time.Since(m.start) / time.Millisecond); at < len(m.longest) && t.nanos > m.longest[at].nanos {
		m.longest[at] = t
	}
}

func (s *tally) add(t turn, turns int) {
	s.busy += t.took()
	s.turns += turns
	if t.nanos > s.worst.nanos {
		s.worst = t
	}
	if t.took() > worstTurn {
		s.long++
	}
}

func (s tally) String() string {
	return fmt.Sprintf("%d turns in %v, %d above %v, the worst %v", s.turns, s.busy, s.long, worstTurn, s.worst)
}

// threadTime returns what the thread has used until now. It makes a raw system call, as the other
// kind tells the scheduler, which costs more.
func threadTime() time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// collecting is whether the garbage collector is at work.
var collecting atomic.Bool

// collect has the garbage collector work for a tenth of the time or more, until the function that
// it returns is called. That is far more than it would by itself, and turns know of it. It runs
// outside of virtual time.
func collect() (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			collecting.Store(true)
			begun := time.Now()
			runtime.GC()
			collecting.Store(false)
			select {
			case <-time.After(min(9*time.Since(begun), 5*time.Second)):
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

// counted is what control has counted, so that it is not left out.
var counted int

// control measures what only counts, for a while, as turns are measured: what is long there, a turn
// cannot help either.
func control(lasts time.Duration) tally {
	var m meter
	for m.all.busy < lasts {
		m.measure(counting, func() {
			for i := range 30_000 {
				counted += i
			}
		})
	}
	return m.all
}
