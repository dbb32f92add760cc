//go:build !linux

package sockets

import (
	"errors"
	"syscall"
)

// HasWritev and HasSendFile report whether this system has Writev and SendFile.
const HasWritev, HasSendFile = false, false

// Writev returns errors.ErrUnsupported.
func Writev(int, [][]byte) (int, error) { return 0, errors.ErrUnsupported }

// SendFile returns errors.ErrUnsupported.
func SendFile(int, syscall.RawConn, int64, int) (int, error) { return 0, errors.ErrUnsupported }
