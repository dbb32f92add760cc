package wheel

import (
	"testing"
	"time"
)

// TestFollowedDeadlines checks the numbers of docs/wheel.md: the times at which a timer moves down,
// and its slots.
func TestFollowedDeadlines(t *testing.T) {
	type stop struct {
		level, slot int
		from        time.Duration
	}
	type timer struct{ tick, due time.Duration }
	for x, way := range map[timer][]stop{
		{at(1), 7100 * time.Second}:  {{3, 27, 0}, {2, 5, at(7_077_888)}, {1, 25, at(7_098_368)}, {0, 32, at(7_099_968)}},
		{at(10), 7100 * time.Second}: {{3, 2, 0}, {2, 45, at(5_242_880)}, {1, 21, at(7_086_080)}, {0, 48, at(7_099_520)}},
		{at(1), 7 * 24 * time.Hour}:  {{4, 36, 0}, {3, 3, at(603_979_776)}, {2, 8, at(604_766_208)}, {1, 16, at(604_798_976)}, {0, 0, at(604_800_000)}},
	} {
		var now, called time.Duration
		w, due := New(Config{Tick: x.tick}), x.due
		x := w.At(due, func() { called = now })
		where := func() stop {
			at := int(w.node(x.index).slot & slotIndex)
			if at == inNone { // it has been called from its slot
				at = slotAt(0, w.pos)
			}
			return stop{at >> slotBits, at & slotMask, 0}
		}
		for i, s := range way {
			if i > 0 {
				now = s.from - 1
				w.Advance(now, 0)
				if got, want := where(), (stop{way[i-1].level, way[i-1].slot, 0}); got != want {
					t.Errorf("%v: at %v on %v, want %v", due, now, got, want)
				}
			}
			now = s.from
			w.Advance(now, 0)
			if got, want := where(), (stop{s.level, s.slot, 0}); got != want {
				t.Errorf("%v: at %v on %v, want %v", due, now, got, want)
			}
		}
		now = due - 1
		w.Advance(now, 0)
		now = due
		w.Advance(now, 0)
		if called != due {
			t.Errorf("%v: called at %v", due, called)
		}
	}
}
