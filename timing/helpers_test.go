package timing

import (
	"slices"
	"testing"
	"time"
)

// record notes what ran, by name.
type record []string

func (l *record) add(name string) func() { return func() { *l = append(*l, name) } }

func (l *record) want(t *testing.T, names ...string) {
	t.Helper()
	if !slices.Equal(*l, names) {
		t.Fatalf("ran %q, want %q", *l, names)
	}
	*l = nil
}

func mustPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if got := recover(); got != want {
			t.Errorf("panicked with %v, want %q", got, want)
		}
	}()
	f()
}

func at(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
