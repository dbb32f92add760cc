//go:build linux && !386 && !s390x

package epoll

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// timer is what a loop ticks by: a timerfd(2) in the loop's own epoll instance. A timer of Go's is
// up to a millisecond late in a program that sleeps, as Go's poller waits in milliseconds. It
// implements pollee.
type timer struct {
	loop  *eventLoop
	fd    int
	base  time.Duration // what setAt counts from, on the kernel's clock
	set   time.Duration // when it is going to ring, or engine.Never
	proof chan struct{} // closed in place of the first tick; see poller.prove
}

func newTimer(l *eventLoop, base time.Time) (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &timer{loop: l, fd: fd, base: kernelTime(base), set: engine.Never}, nil
}

// kernelTime returns t on CLOCK_MONOTONIC, which is Go's monotonic clock: both stand still while
// the machine sleeps. It is never early, and late by the time between two looks at it, in which the
// thread may be interrupted: so the best of some is taken.
func kernelTime(t time.Time) time.Duration {
	best := engine.Never
	for range 10 {
		since := time.Since(t)
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it is always there
		best = min(best, time.Duration(now.Nano())-since)
	}
	return best
}

// setAt sets the timer. Only a deadline that is earlier than what it is set to costs a system call.
// One that is later does not: messages may move deadlines on, each of them. The timer rings once
// for nothing then, and the loop sets it anew.
func (t *timer) setAt(when time.Duration) {
	if when >= t.set {
		return
	}
	t.set = when
	at := engine.Never // 292 years ahead
	if when < engine.Never-t.base {
		at = max(t.base+when, 1) // 0 would disarm it
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
	_ = unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}

// ringSoon sets the timer when the loop is likely to wait.
func (t *timer) ringSoon() {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	t.setAt(time.Duration(now.Nano()) - t.base + time.Millisecond)
}

// polled implements pollee.
func (t *timer) polled(uint32) {
	t.set = engine.Never
	if t.proof != nil {
		close(t.proof)
		t.proof = nil
		return
	}
	t.loop.engine.host.OnTick(t.loop.index)
}
