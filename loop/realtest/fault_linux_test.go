package realtest_test

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// threadID returns the system's number of the calling thread.
func threadID() int { return unix.Gettid() }

// threadTime is for how long a thread of this process has run, by the clock that
// pthread_getcpuclockid(3) would name.
func threadTime(id int) time.Duration { return clock(^int32(id)<<3 | 6) }

func setSoftLimit(n int) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		fail(err)
	}
	lim.Cur = uint64(n)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		fail(err)
	}
}

// setLimit sets the limit of open files of this process.
func setLimit(n int) {
	lim := syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		fail(err)
	}
}
