package timing

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/internal/wheel"
)

// Many goroutines with keys of their own: an entry expires at most once for each Set, and never
// after a Remove that said true.
func TestKeyedIsSafeForAnyGoroutine(t *testing.T) {
	const goroutines, each = 8, 3000
	type state struct{ expired, removed atomic.Bool }
	var expired, removed atomic.Int64
	k := NewKeyed(KeyedConfig{}, func(gone []Entry[int, *state]) {
		for _, e := range gone {
			if e.Value.expired.Swap(true) || e.Value.removed.Load() {
				t.Error("expired twice, or after it was removed")
			}
			expired.Add(1)
		}
	})
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 3))
			for range each {
				key := g*100 + r.IntN(10)
				switch r.IntN(5) {
				case 0, 1:
					k.Remove(key)
					must(0, k.Set(key, new(state), time.Duration(r.IntN(3000))*time.Microsecond))
				case 2:
					k.Move(key, time.Duration(r.IntN(3000))*time.Microsecond)
				case 3:
					if s, ok := k.Remove(key); ok {
						if s.expired.Load() || s.removed.Swap(true) {
							t.Error("removed after it expired, or twice")
						}
						removed.Add(1)
					}
				case 4:
					k.Get(key)
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
	must(0, k.Set(-1, new(state), 0))
	for expired.Load() == 0 {
		runtime.Gosched()
	}
	k.Stop()
	if expired.Load() == 0 || removed.Load() == 0 {
		t.Errorf("%d expired, %d removed", expired.Load(), removed.Load())
	}
}

func TestKeyedSetReplacesValueAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r record
		k := NewKeyed(KeyedConfig{}, func(gone []Entry[string, string]) {
			for _, e := range gone {
				r.add(e.Key + "=" + e.Value)()
			}
		})
		defer k.Stop()
		must(0, k.Set("a", "1", at(5)))
		must(0, k.Set("a", "2", at(20)))
		must(0, k.Set("b", "3", at(10)))
		testkit.Pass(at(15))
		r.want(t, "b=3")
		must(0, k.Set("c", "now", 0))
		must(0, k.Set("d", "never", math.MaxInt64))
		testkit.Pass(at(5))
		r.want(t, "c=now", "a=2")
		if v, ok := k.Get("d"); v != "never" || !ok || k.Len() != 1 {
			t.Errorf("%q, %v, Len %d", v, ok, k.Len())
		}
	})
}

func TestKeyedExpireMayDoAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k *Keyed[string, int]
		var left []Entry[string, int]
		calls := 0
		k = NewKeyed(KeyedConfig{}, func(gone []Entry[string, int]) {
			calls++
			switch e := gone[0]; e.Value {
			case 0, 1:
				must(0, k.Set(e.Key, e.Value+1, 0)) // its key is free
				k.Drain(func(key string, value int) { must(0, k.Set(key, value, at(1))) })
			case 2:
				must(0, k.Set("left", 9, time.Hour))
				left = k.Stop()
			}
		})
		must(0, k.Set("k", 0, at(1)))
		testkit.Pass(time.Minute)
		if calls != 3 || len(left) != 1 || left[0].Key != "left" || k.Stop() != nil {
			t.Errorf("%d calls, Stop returned %v", calls, left)
		}
		testkit.WantErr(t, "Set", k.Set("k", 0, 0), ErrStopped)
		testkit.WantErr(t, "Move", k.Move("k", 0), ErrStopped)
		testkit.Want(t, "k.Len()", k.Len(), 0)
	})
}

// Batches: everything expires once, in order, and a panic costs its batch only.
func TestKeyedBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5*wheel.Batch + 7
		var got []int
		var sizes []int
		panics := 0
		k := NewKeyed(KeyedConfig{OnPanic: func(any, []byte) { panics++ }}, func(gone []Entry[int, int]) {
			sizes = append(sizes, len(gone))
			if len(sizes) == 2 {
				panic("in expire")
			}
			for _, e := range gone {
				got = append(got, e.Key)
			}
		})
		defer k.Stop()
		for i := range n {
			must(0, k.Set(i, i, at(1)))
		}
		testkit.Pass(at(1))
		testkit.Want(t, "len(got)", len(got), n-wheel.Batch)
		testkit.Want(t, "slices.IsSorted(got)", slices.IsSorted(got), true)
		testkit.Want(t, "panics", panics, 1)
		testkit.Want(t, "slices.Max(sizes)", slices.Max(sizes), wheel.Batch)
	})
}

func TestKeyedWheelWhenItsOwnerAdvances(t *testing.T) {
	w := wheel.New(wheel.Config{})
	var k *wheel.Keyed[string, int]
	calls := 0
	k = wheel.NewKeyed(w, nil, func(gone []Entry[string, int]) {
		for _, e := range gone {
			if calls++; e.Value < 3 {
				k.Set(e.Key, e.Value+1, w.Now())
			}
		}
		if calls == 2 {
			panic("in expire")
		}
	})
	k.Set("k", 0, at(1))
	w.Advance(at(1), 0)
	if calls != 1 || k.Len() != 1 {
		t.Errorf("%d calls, want 1: what is set in expire is due in the next Advance", calls)
	}
	mustPanic(t, "in expire", func() { w.Advance(at(1), 0) })
	for range 5 {
		w.Advance(at(2), 0)
	}
	testkit.Want(t, "calls", calls, 4)
	testkit.Want(t, "k.Len()", k.Len(), 0)
	testkit.Want(t, "w.Len()", w.Len(), 0)
	k.Set("k", 9, at(500))
	w.Advance(at(499), 0)
	k.Remove("k")
	if w.Advance(at(600), 0); calls != 4 {
		t.Error("removed, and expired")
	}
	k.Set("k", 9, at(700))
	testkit.Want(t, "Drain", k.Drain(nil), 1)
	testkit.Want(t, "k.Len()", k.Len(), 0)
	testkit.Want(t, "w.Len()", w.Len(), 0)
}

func TestKeyedLimitAndErrors(t *testing.T) {
	k := NewKeyed[int, int](KeyedConfig{MaxPending: 2}, nil)
	defer k.Stop()
	must(0, k.Set(1, 1, time.Hour))
	must(0, k.Set(2, 1, time.Hour))
	var limit *LimitError
	if err := k.Set(3, 1, time.Hour); !errors.As(err, &limit) || limit.Max != 2 {
		t.Errorf("one too many: %v", err)
	}
	if err := k.Set(2, 5, time.Hour); err != nil {
		t.Errorf("replacing one at the limit: %v", err)
	}
	mustPanic(t, "timing: negative MaxPending or Workers", func() { NewKeyed[int, int](KeyedConfig{MaxPending: -1}, nil) })
	mustPanic(t, "timing: a negative Tick", func() { NewKeyed[int, int](KeyedConfig{Tick: -1}, nil) })
}

// A key that is not equal to itself can be set, and expires.
func TestKeyedNaN(t *testing.T) {
	w := wheel.New(wheel.Config{})
	n := 0
	k := wheel.NewKeyed(w, nil, func(gone []Entry[float64, int]) { n += len(gone) })
	for range 100 {
		k.Set(math.NaN(), 1, at(1))
	}
	testkit.Want(t, "k.Move(math.NaN(), at(9))", k.Move(math.NaN(), at(9)), false)
	testkit.Want(t, "k.Len()", k.Len(), 100)
	w.Advance(at(1), 0)
	testkit.Want(t, "n", n, 100)
	testkit.Want(t, "k.Len()", k.Len(), 0)
}

func TestKeyedDoesNotAllocate(t *testing.T) {
	w := wheel.New(wheel.Config{})
	owned := wheel.NewKeyed[string, int](w, nil, nil)
	shared := NewKeyed[string, int](KeyedConfig{}, nil)
	defer shared.Stop()
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
		owned.Set(keys[i], i, at(1000+i))
		must(0, shared.Set(keys[i], i, time.Hour))
	}
	n := 0
	allocs := testing.AllocsPerRun(1, func() {
		for range 20_000 {
			key := keys[n*7919%len(keys)]
			n++
			owned.Remove(key)
			owned.Set(key, n, at(n+1000))
			owned.Move(key, at(n+5000))
			w.Advance(at(n), 0)
			shared.Remove(key)
			_ = shared.Set(key, n, time.Hour)
			shared.Move(key, time.Hour)
		}
	})
	if allocs > 10 { // of growing
		t.Errorf("%v allocations in 20,000 rounds", allocs)
	}
}

// An expired entry keeps nothing alive.
func TestKeyedForgetsWhatIsGone(t *testing.T) {
	w := wheel.New(wheel.Config{})
	k := wheel.NewKeyed[int, *[1 << 20]byte](w, nil, nil)
	var kept [3]weak.Pointer[[1 << 20]byte]
	for i := range kept {
		big := new([1 << 20]byte)
		kept[i] = weak.Make(big)
		k.Set(i, big, at(1+i))
	}
	k.Remove(0)
	w.Advance(at(2), 0)
	k.Set(2, nil, at(100))
	runtime.GC()
	for i, big := range kept {
		if big.Value() != nil {
			t.Errorf("value %d is kept", i)
		}
	}
	runtime.KeepAlive(k)
}

// Beyond its key and value an entry takes 32 bytes, and its place in a map that may be half empty.
func TestKeyedMemory(t *testing.T) {
	const n = 1_000_000
	w := wheel.New(wheel.Config{})
	k := wheel.NewKeyed[uint64, uint64](w, nil, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range uint64(n) {
		k.Set(i, i, at(60_000+int(i)%3_600_000))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := float64(after.HeapAlloc-before.HeapAlloc)/n - 16
	objects := int64(after.HeapObjects - before.HeapObjects) // less than none, if garbage of other tests has gone
	if each > 80 || objects > 8000 {
		t.Errorf("%.1f bytes beyond key and value, %d objects", each, objects)
	}
	runtime.KeepAlive(k)
}
