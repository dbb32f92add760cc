package loop

import (
	"runtime"
	"testing"
	"time"
)

// A connection's timer takes at most 72 bytes in all, as the heap grows.
func TestSizeOfAConnectionsTimer(t *testing.T) {
	const n = 100_000
	r := newRig(t, &Server{}, HandlerFunc(echoAll))
	c, _, _ := r.connect()
	timers, f := make([]Timer, n), func() {}
	c.AfterFunc(time.Hour, f).Stop()
	before := heapAlloc()
	for i := range timers {
		timers[i] = c.AfterFunc(time.Hour+time.Duration(i)*time.Millisecond, f)
	}
	each := float64(int64(heapAlloc()-before)) / n
	t.Logf("%.1f bytes", each)
	if each > 72 {
		t.Errorf("a connection's timer takes %.1f bytes, want at most 72", each)
	}
	for _, x := range timers {
		if !x.Pending() {
			t.Fatal("a timer is not pending")
		}
	}
}

// heapAlloc returns the bytes of what is alive.
func heapAlloc() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
