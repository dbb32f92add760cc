//go:build unix

package main

import (
	"os"
	"path/filepath"
	"syscall"
)

// lock keeps other processes that start at the same time from looking at a socket's path, and
// returns what ends that. The lock is the directory's own: it leaves no file behind. Who may not
// read the directory goes without.
func lock(path string) (unlock func()) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return func() {}
	}
	for {
		if err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return func() { _ = dir.Close() } // which ends the lock
		}
	}
}
