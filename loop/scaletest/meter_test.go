//go:build linux

package scaletest_test

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// together is how many read events are measured as one: the clock of a thread is a system call.
const together = 8

// worstTurn is how long a turn should be at most.
const worstTurn = 2 * time.Millisecond

// meter measures the loop by the clock of its thread, which stands still while the machine does
// something else: virtual time does not pass while code runs. The loop keeps its thread for the
// length of a turn. Without that a turn during which Go preempts it, after 10 ms of running at the
// latest, would be charged with what runs on the thread meanwhile, such as a worker of the garbage
// collector. What that has the loop itself do when it allocates is in the times.
type meter struct {
	busy      time.Duration // in all turns
	worst     time.Duration // the longest of them, or of so many read events
	worstKind string
	turns     int
	long      int // that were longer than they should be
	begun     time.Duration
	group     int
}

// measure runs one turn.
func (m *meter) measure(kind string, turn func()) {
	m.flush()
	begun := begin()
	turn()
	m.end(kind, begun)
	m.turns++
}

// few runs a short turn, which is measured together with others.
func (m *meter) few(c *client, p []byte) {
	if m.group == 0 {
		m.begun = begin()
	}
	c.sink.Readable(p)
	m.turns++
	if m.group++; m.group == together {
		m.flush()
	}
}

func (m *meter) flush() {
	if m.group > 0 {
		m.group = 0
		m.end("messages", m.begun)
	}
}

func begin() time.Duration {
	runtime.LockOSThread()
	return threadTime()
}

func (m *meter) end(kind string, begun time.Duration) {
	used := threadTime() - begun
	runtime.UnlockOSThread()
	m.busy += used
	if used > m.worst {
		m.worst, m.worstKind = used, kind
	}
	if used > worstTurn {
		m.long++
	}
}

// threadTime returns what the thread has used until now. It makes a raw system call, as the other
// kind tells the scheduler, which costs more.
func threadTime() time.Duration {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// counted is what control has counted, so that it is not left out.
var counted int

// control measures what only counts, for a while, as turns are measured: what is long there, a turn
// cannot help either.
func control(lasts time.Duration) (worst time.Duration, long int) {
	var m meter
	for m.busy < lasts {
		m.measure("counting", func() {
			for i := range 30_000 {
				counted += i
			}
		})
	}
	return m.worst, m.long
}
