package loop

import (
	"testing"
	"testing/synctest"
	"time"
)

// When the wall clock is set, what tells the time follows it, and timers do not.
func TestNowFollowsTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step = 8 * time.Hour
		r := newRig(t, &Server{IdleTimeout: time.Minute}, HandlerFunc(echoAll))
		c, _, _ := r.connect()
		opened := time.Now()
		fired := time.Time{}
		c.AfterFunc(10*time.Second, func() { fired = time.Now() })
		r.Loop.wall = func() time.Time { return time.Now().Add(step) }
		if now := r.Now(); !now.Equal(opened.Add(step)) {
			t.Errorf("Now is %v, the clock shows %v", now, opened.Add(step))
		}
		if info := c.Info(); !info.Opened.Equal(opened.Add(step)) {
			t.Errorf("opened at %v, want %v", info.Opened, opened.Add(step))
		}
		if when := c.Info().IdleDeadline; !when.Equal(opened.Add(step + time.Minute)) {
			t.Errorf("evicted at %v, want %v", when, opened.Add(step+time.Minute))
		}
		r.Loop.wall = func() time.Time { return time.Now().Add(-step) }
		if now := r.Now(); !now.Equal(opened.Add(-step)) {
			t.Errorf("Now is %v, the clock shows %v", now, opened.Add(-step))
		}
		r.pass(10*time.Second - 1)
		if r.turn(); !fired.IsZero() {
			t.Error("the timer followed the wall clock")
		}
		r.pass(time.Millisecond)
		if r.turn(); fired.IsZero() {
			t.Error("the timer did not fire")
		}
	})
}
