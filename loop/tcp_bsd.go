//go:build unix && !linux

package loop

import (
	"errors"
	"time"
)

// inheritsKeepAlive is false: package net sets the keep-alives of each connection.
const inheritsKeepAlive = false

func setKeepAlive(int, TCPOptions) error { return nil }

func setUserTimeout(_ int, d time.Duration) error {
	if d == 0 {
		return nil
	}
	return errors.ErrUnsupported
}
