//go:build unix

package aof

import (
	"os"

	"golang.org/x/sys/unix"
)

// lock takes a file for this process, until the file is closed, or fails at once.
func lock(file *os.File) error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
