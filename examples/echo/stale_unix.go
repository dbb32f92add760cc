//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lock keeps other processes that start at the same time from looking at a socket's path, and
// returns what ends that. The lock is the directory's own: it leaves no file behind. Who may not
// read the directory goes without, and who does not get the lock within a second, as anybody who
// may read a directory can lock it for good.
func lock(path string) (unlock func()) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return func() {}
	}
	for tries := 0; tries < 100; tries++ {
		if err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EWOULDBLOCK && err != syscall.EINTR {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() { _ = dir.Close() } // which ends the lock
}
