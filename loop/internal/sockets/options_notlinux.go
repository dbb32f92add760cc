//go:build !linux

package sockets

import (
	"errors"
	"syscall"
	"time"
)

func setUserTimeout(int, time.Duration) error { return errors.ErrUnsupported }

func dropErrorQueue(int) {}

// SharePort does what Linux needs to use a port for several addresses.
func SharePort(syscall.RawConn) {}

// PeerEnded is not known here: systems other than Linux tell it only to who reads.
func PeerEnded(uintptr) bool { return false }
