package realtest_test

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// threadID returns the system's number of the calling thread.
func threadID() int { return unix.Gettid() }

// setLimit sets the limit of open files of this process.
func setLimit(n int) {
	lim := syscall.Rlimit{Cur: uint64(n), Max: uint64(n)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		fail(err)
	}
}
