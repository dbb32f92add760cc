package journal

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Lines are written in their order. One that blocks holds up only Wait, and that for a second.
func TestJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j Journal
		j.Wait()
		goOn, written := make(chan struct{}), []int(nil)
		j.Add(func() { <-goOn })
		for i := range 2 * maxLines {
			j.Add(func() { written = append(written, i) })
		}
		began := time.Now()
		if j.Wait(); time.Since(began) != waitTimeout {
			t.Errorf("Wait took %v, want %v", time.Since(began), waitTimeout)
		}
		close(goOn)
		j.Wait()
		if len(written) != maxLines-1 || !slices.IsSorted(written) {
			t.Errorf("written are %d lines, want %d in their order", len(written), maxLines-1)
		}
		j.Add(func() { written = nil })
		if j.Wait(); written != nil {
			t.Error("a line that comes later is not written")
		}
	})
}
