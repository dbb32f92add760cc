//go:build linux

package scaletest_test

import (
	"fmt"
	"runtime"
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
)

func (k kind) String() string {
	return [...]string{"messages", "timers and mailbox", "arrival", "end"}[k]
}

// meter measures the loop by the clock of its thread, which stands still while the machine does
// something else: virtual time does not pass while code runs. The loop keeps its thread for the
// length of a turn. Without that a turn during which Go preempts it, after 10 ms of running at the
// latest, would be charged with what runs on the thread meanwhile, such as a worker of the garbage
// collector. What that has the loop itself do when it allocates is in the times.
type meter struct {
	busy   time.Duration
	turns  int
	long   int // that were longer than they should be
	worst  time.Duration
	of     kind // the worst turn
	writes int  // that the server made in it

	written int           // that the server has made
	begun   time.Duration // of the turn that is under way
	before  int           // writes until it began
	group   int           // read events in it
}

// restart forgets what there was and measures from now on. It is called in a turn.
func (m *meter) restart() { *m = meter{begun: m.begun} }

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
	m.before = m.written
	runtime.LockOSThread()
	m.begun = threadTime()
}

func (m *meter) end(k kind, turns int) {
	used := threadTime() - m.begun
	runtime.UnlockOSThread()
	m.busy += used
	m.turns += turns
	if used > m.worst {
		m.worst, m.of, m.writes = used, k, m.written-m.before
	}
	if used > worstTurn {
		m.long++
	}
}

func (m *meter) String() string {
	return fmt.Sprintf("%d turns in %v, %d above %v, the worst %v of %v with %d writes",
		m.turns, m.busy, m.long, worstTurn, m.worst, m.of, m.writes)
}

// threadTime returns what the thread has used until now. It makes a raw system call, as the other
// kind tells the scheduler, which costs more.
func threadTime() time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
