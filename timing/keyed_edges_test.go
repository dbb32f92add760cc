package timing

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/internal/wheel"
)

// Drain and Stop give memory back while others work out hashes and deadlines, which is done without
// the lock: none of what they read may change.
func TestKeyedDrainBesideOthers(t *testing.T) {
	k := NewKeyed[int, int](KeyedConfig{Tick: time.Hour}, nil)
	var wg sync.WaitGroup
	end := make(chan bool)
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				_ = k.Set(r.IntN(100), 1, -1) // which needs the wheel's tick
				k.Get(r.IntN(100))
				k.Move(r.IntN(100), time.Hour)
				k.Remove(r.IntN(100))
			}
		})
	}
	drained := 0
	for i := 0; drained < 1000 && i < 1_000_000; i++ {
		drained += k.Drain(nil)
		runtime.Gosched()
	}
	k.Stop()
	close(end)
	wg.Wait()
	if drained == 0 {
		t.Error("nothing was drained")
	}
}

// An entry whose deadline has passed expires in the owner's next Advance, though that brings no
// tick.
func TestKeyedWheelDeadlineThatPassed(t *testing.T) {
	const part = 300 * time.Microsecond
	for _, move := range []bool{false, true} {
		w := wheel.New(wheel.Config{})
		var l record
		k := wheel.NewKeyed(w, nil, func(gone []Entry[string, int]) {
			for _, e := range gone {
				l.add(e.Key)()
			}
		})
		w.Advance(at(10)+2*part, 0)
		for _, d := range []time.Duration{at(10) + part, at(10) + 2*part, at(10), 0, math.MinInt64} {
			if move {
				k.Set("k", 1, time.Hour)
				k.Move("k", d)
			} else {
				k.Set("k", 1, d)
			}
			l.want(t)
			if next, ok := w.Next(); !ok || next > w.Now() {
				t.Errorf("due at %v: Next is %v, %v at %v", d, next, ok, w.Now())
			}
			w.Advance(w.Now(), 0)
			l.want(t, "k")
		}
	}
}

// Entries that are never due expire when the wheel advances to the end of time.
func TestKeyedWheelAtTheEndOfTime(t *testing.T) {
	for _, tick := range []time.Duration{1, 3, time.Millisecond, math.MaxInt64} {
		for _, others := range []int{0, 1} {
			w := wheel.New(wheel.Config{Tick: tick})
			gone := 0
			k := wheel.NewKeyed(w, nil, func(expired []Entry[int, int]) { gone += len(expired) })
			for i := range others {
				k.Set(2+i, 1, 1)
			}
			k.Set(0, 1, math.MaxInt64)
			k.Set(1, 1, math.MaxInt64-1)
			for range 20 {
				when, ok := w.Next()
				if !ok {
					break
				}
				w.Advance(when, 0)
			}
			k.Set(0, 1, math.MaxInt64) // which is now
			w.Advance(math.MaxInt64, 0)
			if k.Len() != 0 || gone != 3+others || w.Len() != 0 {
				t.Errorf("tick %v: %d left, %d expired, the owner has %d timers", tick, k.Len(), gone, w.Len())
			}
		}
	}
}

// If more than a batch is due, a KeyedWheel is due again at once, after the others had their turn.
func TestKeyedWheelTakesABatchInAnAdvance(t *testing.T) {
	w := wheel.New(wheel.Config{})
	gone, other := 0, 0
	k := wheel.NewKeyed(w, nil, func(expired []Entry[int, int]) { gone += len(expired) })
	for i := range 3 * wheel.Batch {
		k.Set(i, i, at(1))
	}
	w.At(at(1), func() { other = gone })
	advances := 0
	for when, ok := w.Next(); ok && when <= at(1); when, ok = w.Next() {
		if w.Advance(at(1), 0); gone > (advances+1)*wheel.Batch {
			t.Fatalf("%d expired in Advance %d", gone, advances)
		}
		advances++
	}
	if gone != 3*wheel.Batch || other != wheel.Batch || advances < 3 {
		t.Errorf("%d expired in %d Advances, %d of them before another timer", gone, advances, other)
	}
}

// Nor does a Keyed keep alive what it has given to its expire function last.
func TestKeyedForgetsItsLastBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKeyed(KeyedConfig{}, func([]Entry[int, *[1 << 20]byte]) {})
		defer k.Stop()
		big := new([1 << 20]byte)
		kept := weak.Make(big)
		must(0, k.Set(1, big, at(1)))
		big = nil
		testkit.Pass(at(1))
		runtime.GC()
		if kept.Value() != nil {
			t.Error("the value of an entry that expired is kept")
		}
	})
}

// A key that cannot be hashed is the caller's mistake, and costs nobody else anything.
func TestKeyedKeyThatCannotBeHashed(t *testing.T) {
	k := NewKeyed[any, int](KeyedConfig{}, nil)
	defer k.Stop()
	owned := wheel.NewKeyed[any, int](wheel.New(wheel.Config{}), nil, nil)
	type pair struct{ a, b any }
	for _, bad := range []any{[]int{1}, map[int]int{}, func() {}, pair{1, []int{}}, [1]any{[]byte{}}} {
		must(0, k.Set(1, 1, time.Hour))
		owned.Set(1, 1, time.Hour)
		for _, f := range []func(){
			func() { _ = k.Set(bad, 1, time.Hour) }, func() { k.Move(bad, 1) }, func() { k.Get(bad) }, func() { k.Remove(bad) },
			func() { owned.Set(bad, 1, 1) }, func() { owned.Move(bad, 1) }, func() { owned.Get(bad) }, func() { owned.Remove(bad) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%T: no panic", bad)
					}
				}()
				f()
			}()
		}
		if v, ok := k.Get(1); v != 1 || !ok || k.Len() != 1 || owned.Len() != 1 {
			t.Fatalf("after a %T: %d, %v, Len %d and %d", bad, v, ok, k.Len(), owned.Len())
		}
	}
}
