//go:build unix && !linux

package loop

import (
	"errors"
	"time"
)

func setUserTimeout(int, time.Duration) error { return errors.ErrUnsupported }
