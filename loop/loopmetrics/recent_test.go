package loopmetrics_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// The dearer an answer is, the more seldom it is made.
func TestDearAnswers(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0:                    time.Second,
		2 * time.Millisecond: time.Second,
		3 * time.Millisecond: 1500 * time.Millisecond,
		time.Second:          2 * time.Second,
	} {
		if got := loopmetrics.GoodFor(took); got != want {
			t.Errorf("one that took %v is good for %v, want %v", took, got, want)
		}
	}
}
