package realtest_test

import (
	"errors"
	"os"
)

// The tests that need the first of these run on Unix only.

var stopProcess, continueProcess = os.Kill, os.Kill

func dupFD(int) (int, error) { return 0, errors.ErrUnsupported }

func closeFD(int) {}

func writeFD(_ int, p []byte) (int, error) { return os.Stderr.Write(p) }

func peerOf(int) string { return "" }
