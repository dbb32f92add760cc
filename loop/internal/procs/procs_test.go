package procs

import (
	"runtime"
	"testing"
)

func TestReserve(t *testing.T) {
	t.Setenv("GOMAXPROCS", "") // CI may set it
	n := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(n)
	if got := Available(); got != n {
		t.Fatalf("Available is %d, GOMAXPROCS %d", got, n)
	}
	if old, now := Reserve(n); old != n || now != n+1 || runtime.GOMAXPROCS(0) != n+1 {
		t.Errorf("%d loops: %d to %d, want %d to %d", n, old, now, n, n+1)
	}
	if got := Available(); got != n {
		t.Errorf("Available is %d with a P in reserve, want %d", got, n)
	}
	if old, now := Reserve(2); old != n+1 || now != n+3 {
		t.Errorf("2 loops more: %d to %d, want %d to %d", old, now, n+1, n+3)
	}
	Release(2)
	if got := runtime.GOMAXPROCS(0); got != n+3 {
		t.Errorf("%d with loops that live, want %d", got, n+3)
	}
	Release(n)
	if got := runtime.GOMAXPROCS(0); got != n+3 { // Go would lose cleanups
		t.Errorf("%d after the last loop, want %d", got, n+3)
	}
	if got := Available(); got != n {
		t.Errorf("Available is %d after the last loop, want %d", got, n)
	}
	if old, now := Reserve(n + 1); old != n+3 || now != n+3 {
		t.Errorf("the next %d loops: %d to %d, want none more than %d", n+1, old, now, n+3)
	}
	if got := Available(); got != n {
		t.Errorf("Available is %d for the next loops, want %d", got, n)
	}
	Release(n + 1)
}

func TestReserveIsNotNeeded(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	n := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(n)
	if old, now := Reserve(3); old != 4 || now != 4 {
		t.Errorf("3 loops on 4 Ps: %d to %d", old, now)
	}
	Release(3)
	if got := runtime.GOMAXPROCS(0); got != 4 {
		t.Errorf("%d afterwards", got)
	}
}

func TestEnvironmentIsObeyed(t *testing.T) {
	n := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", "2")
	if old, now := Reserve(n + 4); old != n || now != n {
		t.Errorf("%d to %d, though the environment says how many", old, now)
	}
	Release(n + 4)
}

// What others set while loops run stays.
func TestOthersChange(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	n := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(n)
	Reserve(n)
	runtime.GOMAXPROCS(n + 7)
	if got := Available(); got != n+7 {
		t.Errorf("Available is %d, want %d", got, n+7)
	}
	Release(n)
	if got := runtime.GOMAXPROCS(0); got != n+7 {
		t.Errorf("GOMAXPROCS is %d afterwards, want %d", got, n+7)
	}
}
