package store

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// TestPages compares the list with a plain slice, over the borders of pages.
func TestPages(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	var l pages[string]
	var model []string
	for step := range 45_000 {
		if grow := step/5000%2 == 0; len(model) == 0 || grow == (random.IntN(8) > 0) {
			v := strconv.Itoa(step)
			l.push(v)
			model = append(model, v)
		} else {
			last := len(model) - 1
			if v := l.pop(); v != model[last] {
				t.Fatalf("step %d: popped %s, want %s", step, v, model[last])
			}
			model = model[:last]
		}
		if l.len() != len(model) || len(l.page) > len(model)/pageSize+2 {
			t.Fatalf("step %d: %d elements on %d pages, want %d", step, l.len(), len(l.page), len(model))
		}
	}
	c := l.clone()
	*c.at(0) = "changed"
	c.push("more")
	if !slices.Equal(slices.Collect(l.all()), model) {
		t.Error("not the elements in their order")
	}
	from, to := len(model)/3, len(model)/2
	if !slices.Equal(slices.Collect(l.part(from, to)), model[from:to]) {
		t.Error("not the elements of a part")
	}
	for range len(model) - 3 {
		l.pop()
	}
	if got := cap(l.page[0]); got > 64 || len(l.page) != 1 {
		t.Errorf("3 elements keep room for %d, on %d pages", got, len(l.page))
	}
}

// TestDict compares a dict with a map, walks and chance included.
func TestDict(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	var d dict[int]
	model := make(map[string]int)
	for step := range 60_000 {
		key := strconv.Itoa(random.IntN(3000))
		switch _, there := model[key]; {
		case random.IntN(3) == 0 == (step/20_000 != 1):
			if got := d.remove(key); got != there {
				t.Fatalf("step %d: remove reports %v", step, got)
			}
			delete(model, key)
		default:
			if isNew := d.set([]byte(key), step); isNew == there {
				t.Fatalf("step %d: set reports %v", step, isNew)
			}
			model[key] = step
		}
		if d.len() != len(model) {
			t.Fatalf("step %d: %d entries, want %d", step, d.len(), len(model))
		}
	}
	c := d.clone()
	for _, one := range []*dict[int]{&d, &c} {
		for it := range one.list.all() {
			if v, ok := model[it.key]; !ok || v != it.val {
				t.Fatalf("%s is %d, want %d, %v", it.key, it.val, v, ok)
			}
			if v, ok := one.get([]byte(it.key)); !ok || v != it.val {
				t.Fatalf("get %s: %d, %v", it.key, v, ok)
			}
		}
		if it := one.random(); !one.has(it.key) {
			t.Errorf("chance gives %s, which is not there", it.key)
		}
	}
}

// A walk by cursors finds each element that is there all the time, whatever else comes and goes.
func TestWindow(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	var d dict[int]
	for i := range 500 {
		d.add("stays"+strconv.Itoa(i), i)
		d.add("goes"+strconv.Itoa(i), i)
	}
	found := make(map[string]bool)
	for cursor, first := uint64(0), true; cursor != 0 || first; first = false {
		from, to, next := window(cursor, 7, d.len())
		for it := range d.list.part(from, to) {
			found[it.key] = true
		}
		d.remove("goes" + strconv.Itoa(random.IntN(500)))
		d.set([]byte("new"+strconv.Itoa(random.IntN(100))), 0)
		cursor = next
	}
	for i := range 500 {
		if !found["stays"+strconv.Itoa(i)] {
			t.Errorf("the walk has missed stays%d", i)
		}
	}
}

// A cursor that nobody gave, or that of a list which has become shorter, begins somewhere, and the
// walk ends.
func TestAnyCursorComesToAnEnd(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Pick(t, 2), 1))
	for _, n := range []int{0, 1, 10, 1000} {
		for _, cursor := range []uint64{1, uint64(n), uint64(n) + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64, random.Uint64()} {
			for _, count := range []int{1, 10, 1 << 30} {
				next, steps := cursor, 0
				for steps == 0 || next != 0 {
					from, to, then := window(next, count, n)
					if steps++; from < 0 || to < from || to > n || to-from > count || steps > n+1 {
						t.Fatalf("%d elements, cursor %d, count %d: step %d is from %d to %d", n, cursor, count, steps, from, to)
					}
					next = then
				}
			}
		}
	}
}

func TestSample(t *testing.T) {
	for _, n := range []int{0, 1, 10, 60, 100, 200} {
		places := sample(n, 100)
		slices.Sort(places)
		if len(places) != min(n, 100) || len(slices.Compact(places)) != min(n, 100) {
			t.Errorf("sample(%d, 100) gives %d places, %d of them different", n, len(places), len(slices.Compact(places)))
		}
	}
}
