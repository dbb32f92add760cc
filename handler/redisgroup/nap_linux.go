package redisgroup

import (
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A nap is a timer of the system, by which a goroutine sleeps for parts of a millisecond: Go's own
// timers are late by up to one on Linux when all else sleeps. It belongs to one goroutine.
type nap struct {
	file *os.File // nil: there is none
	raw  syscall.RawConn
	fd   uintptr
}

// newNap returns a nap, which close ends.
func newNap() *nap {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &nap{}
	}
	n := &nap{file: os.NewFile(uintptr(fd), "timerfd"), fd: uintptr(fd)}
	if n.raw, err = n.file.SyscallConn(); err != nil {
		n.close()
	}
	return n
}

// sleep returns after d, which is above 0.
func (n *nap) sleep(d time.Duration) {
	if n.file == nil || n.set(d) != 0 || n.raw.Read(expired) != nil {
		time.Sleep(d)
	}
}

// set has the timer expire after d, without telling Go's scheduler; see direct.
func (n *nap) set(d time.Duration) syscall.Errno {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}
	_, _, errno := syscall.RawSyscall6(unix.SYS_TIMERFD_SETTIME, n.fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return errno
}

// expired reads how often a timer has expired, and reports whether it had.
func expired(fd uintptr) (done bool) {
	var times [8]byte
	_, _, errno := syscall.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&times[0])), unsafe.Sizeof(times))
	return errno != unix.EAGAIN && errno != unix.EINTR
}

func (n *nap) close() {
	if n.file != nil {
		_ = n.file.Close()
		n.file = nil
	}
}
