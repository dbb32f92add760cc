package realtest_test

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// The tests that need the first of these run on Unix only.

var stopProcess, continueProcess = os.Kill, os.Kill

func dupFD(int) (int, error) { return 0, errors.ErrUnsupported }

func closeFD(int) {}

func writeFD(_ int, p []byte) (int, error) { return os.Stderr.Write(p) }

func peerOf(int) string { return "" }

// wallClock is a clock that goes on in a bubble of virtual time.
func wallClock() time.Duration { return windows.DurationSinceBoot() }

// cpuTime is as long as it took: the tests are stricter for that.
func cpuTime() time.Duration { return wallClock() }
