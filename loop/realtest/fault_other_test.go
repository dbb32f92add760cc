//go:build !linux

package realtest_test

import (
	"errors"
)

// The tests that need these run on Linux only.

func threadID() int { return 0 }

func setLimit(int) { fail(errors.ErrUnsupported) }
