//go:build !linux

package realtest_test

import (
	"errors"
	"time"
)

// The tests that need these run on Linux only.

func threadID() int { return 0 }

// threadTime is that of all threads: the tests are stricter for that.
func threadTime(int) time.Duration { return cpuTime() }

func setSoftLimit(int) { fail(errors.ErrUnsupported) }

func setLimit(int) { fail(errors.ErrUnsupported) }
