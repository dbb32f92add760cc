package testkit

import "testing"

// unlimited is more than any test needs.
const unlimited = 1 << 30

// NeedFiles skips the test if this process may not have n open files at once. The runtime has raised
// the soft limit to the hard one already, and does so in each child that is a Go program.
func NeedFiles(t testing.TB, n int) {
	t.Helper()
	if limit := fileLimit(); limit < n {
		t.Skipf("a process may have %d open files here, and this needs %d: ulimit -n %d", limit, n, n)
	}
}
