package loop

import (
	"testing"
	"time"
)

// A drain that is spread over a window closes all within it, in steps that are not too short.
func TestSpread(t *testing.T) {
	for _, test := range []struct {
		n      int
		window time.Duration
		every  time.Duration
		batch  int
	}{
		{0, time.Second, 0, drainBatch}, {1000, 0, 0, drainBatch}, {10, time.Second, 100 * time.Millisecond, 1},
		{1000, time.Second, drainStep, 10}, {1_000_000, 10 * time.Second, drainStep, 1000}, {3, time.Millisecond, drainStep, 30},
	} {
		if every, batch := spread(test.n, test.window); every != test.every || batch != test.batch {
			t.Errorf("%d in %v: %d each %v, want %d each %v", test.n, test.window, batch, every, test.batch, test.every)
		}
	}
}
