//go:build unix && !linux

package loop

import (
	"errors"
	"time"
)

func setUserTimeout(_ int, d time.Duration) error {
	if d == 0 {
		return nil
	}
	return errors.ErrUnsupported
}
