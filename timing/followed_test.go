package timing

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
	for due, way := range map[time.Duration][]stop{
		7100 * time.Second: {{3, 27, 0}, {2, 69, at(6_815_744)}, {1, 89, at(7_094_272)}, {0, 96, at(7_099_904)}},
		7 * 24 * time.Hour: {{4, 36, 0}, {3, 3, at(587_202_560)}, {2, 72, at(604_504_064)}, {1, 16, at(604_794_880)}, {0, 0, at(604_799_936)}},
	} {
		var now, called time.Duration
		w := New(Config{})
		x := w.At(due, func() { called = now })
		where := func() stop {
			l := w.link(w.node(x.index).at >> offBits).list()
			return stop{levelOfList(l), l % ringSlots, 0}
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
