package store

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// TestList compares the list with a plain slice, over the borders of pages, and looks at its pages.
func TestList(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	var l list
	var model []string
	for step := range 50_000 {
		v := strconv.Itoa(step)
		grow := step/10_000%2 == 0
		switch op := random.IntN(8); {
		case len(model) == 0 || grow && op < 3:
			l.PushBack(v)
			model = append(model, v)
		case grow && op < 6:
			l.PushFront(v)
			model = slices.Insert(model, 0, v)
		case op == 6:
			i := random.IntN(len(model) + 1)
			l.Insert(i, v)
			model = slices.Insert(model, i, v)
		case op == 7:
			i := random.IntN(len(model))
			l.Set(i, v)
			model[i] = v
		case op%2 == 0:
			if got := l.PopFront(); got != model[0] {
				t.Fatalf("step %d: popped %s, want %s", step, got, model[0])
			}
			model = model[1:]
		default:
			last := len(model) - 1
			if got := l.PopBack(); got != model[last] {
				t.Fatalf("step %d: popped %s, want %s", step, got, model[last])
			}
			model = model[:last]
		}
		checkList(t, step, &l, model, random)
	}
	c := l.clone()
	if l.Set(0, "changed"); c.At(0) != model[0] || c.Len() != len(model) {
		t.Error("the copy is not one")
	}
}

func checkList(t *testing.T, step int, l *list, model []string, random *rand.Rand) {
	t.Helper()
	if l.Len() != len(model) {
		t.Fatalf("step %d: %d elements, want %d", step, l.Len(), len(model))
	}
	for i, page := range l.pages {
		if n := page.Len(); n == 0 || n > pageSize || i > 0 && i < len(l.pages)-1 && n != pageSize {
			t.Fatalf("step %d: page %d of %d has %d elements", step, i, len(l.pages), n)
		}
	}
	if len(model) == 0 {
		return
	}
	i := random.IntN(len(model))
	if l.At(i) != model[i] {
		t.Fatalf("step %d: element %d is %s, want %s", step, i, l.At(i), model[i])
	}
	if step%500 == 0 {
		for i, v := range model {
			if l.At(i) != v {
				t.Fatalf("step %d: element %d is %s, want %s", step, i, l.At(i), v)
			}
		}
		if at := l.Index(func(v string) bool { return v == model[i] }); model[at] != model[i] {
			t.Fatalf("step %d: %s is at %d, not at %d", step, model[i], at, i)
		}
	}
}
