//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// A file that may not grow any more (ulimit -f) is as a full disk: writes are refused, but the
// program goes on. Without this, the signal would end it.
func init() { signal.Ignore(syscall.SIGXFSZ) }
