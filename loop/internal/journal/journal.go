// Package journal writes log lines beside the goroutines that have them.
package journal

import (
	"sync"
	"time"
)

const (
	maxLines    = 10_000
	waitTimeout = time.Second
)

// A Journal writes lines one after the other, on a goroutine of its own, so that a writer that
// blocks holds nobody up. It drops lines while maxLines wait. The zero Journal is ready to use.
type Journal struct {
	mu    sync.Mutex
	lines []func()      // the first is being written
	done  chan struct{} // closed when there are none; nil: there was none yet
}

// Add queues line, a function that writes one line.
func (j *Journal) Add(line func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch len(j.lines) {
	case 0:
		j.done = make(chan struct{})
		go j.write(line)
	case maxLines:
		return
	}
	j.lines = append(j.lines, line)
}

func (j *Journal) write(line func()) {
	for line != nil {
		line()
		line = j.next()
	}
}

// next returns the line that follows; nil: there is none.
func (j *Journal) next() func() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lines = j.lines[1:]; len(j.lines) == 0 {
		close(j.done)
		return nil
	}
	return j.lines[0]
}

// Wait waits until all lines are written, but at most for a second.
func (j *Journal) Wait() {
	j.mu.Lock()
	done := j.done
	j.mu.Unlock()
	if done == nil {
		return
	}
	late := time.NewTimer(waitTimeout)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	}
}
