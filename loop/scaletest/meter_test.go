//go:build linux

package scaletest_test

import (
	"syscall"
	"time"
	"unsafe"
)

// together is how many read events are measured as one: the clock of a thread is a system call.
const together = 8

// worstTurn is how long a turn should be at most.
const worstTurn = 2 * time.Millisecond

// meter measures the loop by the clock of its thread, which stands still while the machine does
// something else: virtual time does not pass while code runs.
type meter struct {
	busy  time.Duration // in all turns
	worst time.Duration // the longest of them, or of so many read events
	turns int
	long  int // that were longer than they should be
	moved int // that began on one thread and ended on another, and are not in the times
	begun instant
	group int
}

// measure runs one turn.
func (m *meter) measure(turn func()) {
	m.flush()
	begun := now()
	turn()
	m.note(begun)
	m.turns++
}

// few runs a short turn, which is measured together with others.
func (m *meter) few(c *client, p []byte) {
	if m.group == 0 {
		m.begun = now()
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
		m.note(m.begun)
	}
}

func (m *meter) note(begun instant) {
	end := now()
	if end.thread != begun.thread {
		m.moved++
		return
	}
	m.busy += end.used - begun.used
	m.worst = max(m.worst, end.used-begun.used)
	if end.used-begun.used > worstTurn {
		m.long++
	}
}

// An instant is what a thread has used until now.
type instant struct {
	thread uintptr
	used   time.Duration
}

// now makes raw system calls, as the other kind tells the scheduler, which costs more.
func now() instant {
	const threadClock = 3 // CLOCK_THREAD_CPUTIME_ID
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadClock, uintptr(unsafe.Pointer(&ts)), 0)
	thread, _, _ := syscall.RawSyscall(syscall.SYS_GETTID, 0, 0, 0)
	return instant{thread, time.Duration(ts.Nano())}
}
