//go:build !386 && !s390x

package gnetengine

import (
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// unset is what a bell is set to that is not to ring.
const unset = time.Duration(math.MaxInt64)

// bell implements engine.Bell by a timerfd(2) in the loop's own epoll instance, and pollee. A timer
// of Go's rings up to a millisecond late in a program that sleeps, as its poller waits in
// milliseconds.
type bell struct {
	fd   int
	base time.Duration // what Publish counts from, on the kernel's clock
	set  time.Duration // when it is going to ring, or unset
	ring func()
}

func newBell() (*bell, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &bell{fd: fd, set: unset}, nil
}

// Bell implements engine.Ringer.
func (e *Engine) Bell(loop int, base time.Time, ring func()) engine.Bell {
	p := e.loops[loop].poll
	if p == nil {
		return nil
	}
	p.bell.base, p.bell.ring = kernelTime(base), ring
	return p.bell
}

// kernelTime returns t on CLOCK_MONOTONIC, which is Go's monotonic clock: both stand still while
// the machine sleeps. It is never early, and late by the time between two looks at it, in which the
// thread may be interrupted: so the best of some is taken.
func kernelTime(t time.Time) time.Duration {
	best := unset
	for range 10 {
		since := time.Since(t)
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it is always there
		best = min(best, time.Duration(now.Nano())-since)
	}
	return best
}

// Publish implements engine.Bell. Only a deadline that is earlier than what b is set to costs a
// system call. One that is later does not: messages may move deadlines on, each of them. b rings
// for nothing then, once, and the turn publishes again.
func (b *bell) Publish(when time.Duration) {
	if when >= b.set {
		return
	}
	b.set = when
	at := unset // 292 years ahead
	if when < unset-b.base {
		at = max(b.base+when, 1) // 0 would disarm it
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	_ = unix.TimerfdSettime(b.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}

// Clear implements engine.Bell.
func (b *bell) Clear() {}

// polled implements pollee. As the events are edge-triggered the descriptor need not be read.
func (b *bell) polled(uint32) (look bool) {
	b.set = unset
	b.ring()
	return false
}
