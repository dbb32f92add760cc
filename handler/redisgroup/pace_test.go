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
		{1, 0, false, 0},
		{100, 0, false, 0}, // members here have got these
		{0, 2, true, time.Millisecond},
		{100, 1, false, time.Millisecond},
		{3, 0, true, 2 * time.Millisecond},
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
		p := paceOf(batch, c.oneOrder)
		if p.least != c.want || p.began.IsZero() {
			t.Errorf("%d plain and %d ordered ones, one order %t: %v, want %v", c.plain, c.ordered, c.oneOrder, p.least, c.want)
		}
	}
}

// What comes alone leaves at once, whatever the last batch was.
func TestPaceWaits(t *testing.T) {
	began := time.Now()
	for _, c := range []struct {
		least, since, want time.Duration
	}{
		{0, 0, gathering},
		{0, longAgo - 1, gathering},
		{0, longAgo, 0},
		{2 * time.Millisecond, 500 * time.Microsecond, 1500 * time.Microsecond},
		{2 * time.Millisecond, 2 * time.Millisecond, 0},
		{2 * time.Millisecond, time.Second, 0},
	} {
		if got := (pace{began, c.least}).wait(began.Add(c.since)); max(0, got) != c.want {
			t.Errorf("%v after a batch with a pace of %v: waits for %v, want %v", c.since, c.least, got, c.want)
		}
	}
	if got := (pace{}).wait(began); got > 0 {
		t.Errorf("the first batch waits for %v", got)
	}
}

func TestNap(t *testing.T) {
	n := newNap()
	sleep := func(d time.Duration) {
		t.Helper()
		began := time.Now()
		n.sleep(d)
		if took := time.Since(began); took < d {
			t.Errorf("slept for %v in place of %v", took, d)
		}
	}
	for range 3 {
		sleep(300 * time.Microsecond)
	}
	sleep(5 * time.Millisecond)
	n.close()
	sleep(time.Millisecond) // as where the system has no such timer
}
