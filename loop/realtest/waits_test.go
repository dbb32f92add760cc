package realtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// waits knows for how long the threads of this process were ready to run and did not, in sum, as
// far as the system tells, and for how long the whole process stood still.
type waits struct {
	stood *testkit.Stalls
	mu    sync.Mutex
	moved *sync.Cond // all has
	all   []waited
	ended bool
}

// A waited is for how long they had waited at a time.
type waited struct {
	at  time.Time
	sum time.Duration
}

// watchWaits begins to watch, until end.
func watchWaits() *waits {
	w := &waits{stood: testkit.WatchStalls(), all: []waited{{time.Now(), threadsWaited()}}}
	w.moved = sync.NewCond(&w.mu)
	go func() {
		for w.note() {
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return w
}

// note looks once.
func (w *waits) note() (goOn bool) {
	sum := threadsWaited()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, waited{time.Now(), sum})
	w.moved.Broadcast()
	return !w.ended
}

func (w *waits) end() {
	w.stood.End()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.moved.Broadcast()
}

// within returns for how long the process waited, or stood still, between two times.
func (w *waits) within(from, to time.Time) time.Duration {
	stood := w.stood.Within(from, to)
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.all[len(w.all)-1].at.Before(to) && !w.ended {
		w.moved.Wait()
	}
	before, after := w.all[0], w.all[len(w.all)-1]
	for _, x := range w.all {
		if !x.at.After(from) {
			before = x
		}
		if !x.at.Before(to) {
			after = x
			break
		}
	}
	return max(stood, after.sum-before.sum)
}

// threadsWaited is 0 where the system does not tell.
func threadsWaited() (sum time.Duration) {
	files, _ := filepath.Glob("/proc/self/task/*/schedstat")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		var ran, waited time.Duration
		_, _ = fmt.Sscan(string(b), &ran, &waited)
		sum += waited
	}
	return sum
}
