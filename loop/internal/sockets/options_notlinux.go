//go:build !linux

package sockets

import (
	"errors"
	"syscall"
	"time"
)

func setUserTimeout(int, time.Duration) error { return errors.ErrUnsupported }

func reset(int) {}

func dropErrorQueue(int) {}

// BindNoPort has nothing to do: only Linux needs it.
func BindNoPort(syscall.RawConn) {}

// PeerEnded is not known here: systems other than Linux tell it only to a reader.
func PeerEnded(int) bool { return false }
