package aof

import (
	"os"

	"golang.org/x/sys/windows"
)

// lock takes a file for this process, until the file is closed, or fails at once.
func lock(file *os.File) error {
	const how = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	return windows.LockFileEx(windows.Handle(file.Fd()), how, 0, 1, 0, new(windows.Overlapped))
}
