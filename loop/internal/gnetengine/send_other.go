//go:build unix && (!linux || 386 || s390x)

package gnetengine

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// rawSend has the caller write by package unix: there is no raw send here.
func rawSend(int, []byte) (int, syscall.Errno) { return 0, unix.EINTR }
