// Package filelimit is for tests that need many open files: how many a process may have differs
// from machine to machine.
package filelimit

import "testing"

// unlimited is more than any test needs.
const unlimited = 1 << 30

// Need skips the test if this process may not have n descriptors at once. The runtime has raised
// the soft limit to the hard one already, as it does in each child that is a Go program, too.
func Need(t testing.TB, n int) {
	t.Helper()
	if limit := limit(); limit < n {
		t.Skipf("a process may have %d open files here, and this needs %d: ulimit -n %d", limit, n, n)
	}
}
