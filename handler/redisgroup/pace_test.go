package redisgroup

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	for _, c := range []struct {
		plain, ordered int
		oneOrder       bool
		want           time.Duration
	}{
		{1, 0, false, time.Millisecond},
		{0, 2, true, time.Millisecond},
		{3, 0, true, 2 * time.Millisecond},
		{100, 0, false, time.Millisecond}, // members here have got these
		{100, 4, false, 2 * time.Millisecond},
		{100, 5, false, 4 * time.Millisecond},
		{100, 0, true, 4 * time.Millisecond},
		{0, 100, false, 4 * time.Millisecond},
	} {
		var batch []*outgoing
		for range c.plain {
			batch = append(batch, &outgoing{op: opPlain})
		}
		for range c.ordered {
			batch = append(batch, &outgoing{op: opOrdered})
		}
		if got := pace(batch, c.oneOrder); got != c.want {
			t.Errorf("%d plain and %d ordered ones, one order %t: %v, want %v", c.plain, c.ordered, c.oneOrder, got, c.want)
		}
	}
}
