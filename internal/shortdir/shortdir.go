// Package shortdir makes directories for the unix sockets of tests: a socket's path has little more
// than a hundred bytes, of which the name of the directory for temporary files, and that of the
// test, may take too many.
package shortdir

import (
	"os"
	"path/filepath"
	"testing"
)

// most is what the path of a socket has on each system: 104 bytes on some, with the zero after it.
const most = 103

// Socket returns a path for a socket in a directory of its own, which is removed when the test
// ends.
func Socket(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	if len(path) <= most {
		return path
	}
	dir, err := os.MkdirTemp("/tmp", "s")
	if err != nil {
		t.Skipf("the path %s is too long for a socket (set TMPDIR to a shorter one), and so is each other: %v", path, err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
