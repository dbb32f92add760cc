//go:build !linux

package loop

import "syscall"

// sharePort does what Linux needs to use a port for several addresses.
func sharePort(syscall.RawConn) {}
