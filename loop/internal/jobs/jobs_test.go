package jobs

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func never(t *testing.T) func(any) { return func(v any) { t.Errorf("panicked with %v", v) } }

// Jobs of one queue run one after another in order; no more than max run at a time; each runs once.
func TestOrderAndLimit(t *testing.T) {
	const queues, each, max = 20, 50, 3
	p := new(Pool)
	p.Init(max, 2*queues*each) // a queue gets as much as there is left for others
	var running, most atomic.Int64
	var wg sync.WaitGroup
	done := make([][]int, queues)
	for n := range queues {
		q := p.NewQueue(never(t))
		for i := range each {
			wg.Add(1)
			err := q.Put(func(context.Context) {
				defer wg.Done()
				most.Store(maxOf(most.Load(), running.Add(1)))
				done[n] = append(done[n], i)
				runtime.Gosched()
				running.Add(-1)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	wg.Wait()
	for n := range done {
		if len(done[n]) != each || !slices.IsSorted(done[n]) {
			t.Errorf("queue %d: %v", n, done[n])
		}
	}
	if m := most.Load(); m > max {
		t.Errorf("%d ran at a time, want %d", m, max)
	}
}

func maxOf(a, b int64) int64 { return max(a, b) }

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(Pool)
		p.Init(1, 2)
		a, b := p.NewQueue(never(t)), p.NewQueue(never(t))
		block := func(ctx context.Context) { <-ctx.Done() }
		_ = a.Put(block)
		synctest.Wait() // it runs
		for _, q := range []*Queue{a, b} {
			if err := q.Put(block); err != nil {
				t.Error(err)
			}
		}
		if err := b.Put(block); !errors.Is(err, ErrFull) {
			t.Errorf("a third that waits: %v", err)
		}
		if w, r := p.Counts(); w != 2 || r != 1 {
			t.Errorf("%d wait, %d run", w, r)
		}
		a.End()
		synctest.Wait() // b's runs
		if w, r := p.Counts(); w != 0 || r != 1 {
			t.Errorf("after the end of one queue %d wait, %d run", w, r)
		}
		b.End()
		synctest.Wait()
		if w, r := p.Counts(); w != 0 || r != 0 {
			t.Errorf("in the end %d wait, %d run", w, r)
		}
	})
}

// A panic and a Goexit are reported, and do not affect the queue's other jobs.
func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []any
		p := new(Pool)
		p.Init(1, 10)
		q := p.NewQueue(func(v any) { told = append(told, v) })
		ran := 0
		_ = q.Put(func(context.Context) { panic("boom") })
		_ = q.Put(func(context.Context) { ran++ })
		_ = q.Put(func(context.Context) { runtime.Goexit() })
		_ = q.Put(func(context.Context) { ran++ })
		synctest.Wait()
		if !slices.Equal(told, []any{"boom", nil}) || ran != 2 {
			t.Errorf("told %v, %d ran", told, ran)
		}
	})
}

// Stop waits for running jobs as long as its context allows, and drops queued ones.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(Pool)
		p.Init(2, 10)
		a, b := p.NewQueue(never(t)), p.NewQueue(never(t))
		end := make(chan struct{})
		_ = a.Put(func(context.Context) { <-end })
		_ = a.Put(func(context.Context) { t.Error("ran after Stop") })
		_ = b.Put(func(context.Context) { testkit.Block(time.Second) })
		synctest.Wait()
		began := time.Now()
		if n := p.Stop(5 * time.Second); n != 1 || time.Since(began) != 5*time.Second {
			t.Errorf("%d are left after %v", n, time.Since(began))
		}
		if err := b.Put(func(context.Context) {}); !errors.Is(err, ErrClosed) {
			t.Errorf("Put after Stop: %v", err)
		}
		close(end)
		synctest.Wait()
		if w, r := p.Counts(); w != 0 || r != 0 {
			t.Errorf("%d wait, %d run", w, r)
		}
	})
}

// Jobs of one queue do not overlap, though there are goroutines for all of them, and Stop is over
// when the last one is.
func TestOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(Pool)
		p.Init(3, 10)
		q := p.NewQueue(never(t))
		began := time.Now()
		var ends []time.Duration
		for range 3 {
			_ = q.Put(func(context.Context) {
				testkit.Block(time.Second)
				ends = append(ends, time.Since(began))
			})
		}
		testkit.Pass(2500 * time.Millisecond)
		n := p.Stop(time.Minute)
		if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}; n != 0 || !slices.Equal(ends, want) {
			t.Errorf("the jobs ended at %v, and %d are left", ends, n)
		}
		if d := time.Since(began); d != 3*time.Second {
			t.Errorf("Stop returned after %v", d)
		}
	})
}

// A queue gets no more room than it leaves to others.
func TestRoomIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := new(Pool)
		p.Init(2, 9)
		a, b := p.NewQueue(never(t)), p.NewQueue(never(t))
		block := func(ctx context.Context) { <-ctx.Done() }
		_ = a.Put(block)
		synctest.Wait() // it runs
		for i := range 5 {
			if err := a.Put(block); err != nil {
				t.Errorf("job %d: %v", i, err)
			}
		}
		if err := a.Put(block); !errors.Is(err, ErrFull) {
			t.Errorf("one job too many: %v", err)
		}
		if err := b.Put(block); err != nil {
			t.Errorf("another queue: %v", err)
		}
		a.End()
		b.End()
		synctest.Wait()
	})
}
