package handler_test

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

func TestActorTimers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, silent)
		var fired []string
		note := func(s string) func() { return func() { fired = append(fired, s) } }
		var once, stopped, moved, every loop.Timer
		a := spawn(t, srv.Loops()[0], func(a *handler.Actor[string]) func(string) {
			once = a.AfterFunc(time.Second, note("once"))
			every = a.Every(10*time.Second, note("every"))
			stopped = a.AfterFunc(2*time.Second, note("stopped"))
			moved = a.AfterFunc(3*time.Second, note("moved"))
			a.AfterFunc(time.Hour, note("dead"))
			return func(s string) {
				switch s {
				case "stop timer":
					if once.Stop() || once.Reset(1) || !stopped.Stop() || stopped.Stop() || stopped.Reset(1) {
						t.Error("Stop or Reset of a stopped timer is wrong")
					}
				case "move timer":
					if !moved.Reset(14 * time.Second) {
						t.Error("Reset is wrong")
					}
				case "stop every":
					every.Stop()
				}
			}
		})
		testkit.Pass(time.Second)
		a.Tell("stop timer")
		a.Tell("move timer")
		testkit.Pass(20 * time.Second)
		a.Tell("stop every")
		testkit.Pass(20 * time.Second)
		if want := []string{"once", "every", "moved", "every"}; !slices.Equal(fired, want) {
			t.Errorf("fired %q, want %q", fired, want)
		}
		if n := srv.Stats().Timers; n != 1 {
			t.Errorf("%d timers pending, want 1", n)
		}
		a.Stop()
		testkit.Pass(0)
		if n := srv.Stats().Timers; n != 0 {
			t.Errorf("%d timers pending after Stop", n)
		}
		srv.Do(0, func(*loop.Loop) {
			if once.Stop() || once.Reset(1) || moved.Stop() || every.Reset(1) || stopped.Stop() {
				t.Error("a dead timer says that it was pending")
			}
		})
		testkit.Pass(2 * time.Hour)
		if len(fired) != 4 {
			t.Errorf("fired after Stop: %q", fired)
		}
	})
}

// An actor forgets stopped timers, although only the loop notices the stop.
func TestStoppedActorTimersAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, silent)
		before := heapInUse()
		a := spawn(t, srv.Loops()[0], func(a *handler.Actor[int]) func(int) {
			kept := a.AfterFunc(time.Hour, func() {})
			return func(n int) {
				for range n {
					big := make([]byte, 1<<16)
					a.AfterFunc(time.Hour, func() { big[0]++ }).Stop()
				}
				if !kept.Pending() {
					t.Error("one that was not stopped is gone")
				}
			}
		})
		a.Tell(1000)
		testkit.Pass(0)
		if grown := heapInUse() - before; grown > 10<<20 {
			t.Errorf("%d bytes are kept", grown)
		}
		if n := srv.Stats().Timers; n != 1 {
			t.Errorf("%d timers pending, want 1", n)
		}
	})
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A timer that is due when the actor is stopped, by another goroutine or in the same batch, does
// not fire.
func TestActorTimerStopped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		srv := startLines(t, 1, silent)
		fired := 0
		start := func(a *handler.Actor[int]) func(int) {
			for range 3 {
				a.AfterFunc(time.Second, func() { fired++; a.Stop() })
				a.Every(time.Second, func() { fired++; a.Stop() })
			}
			return func(int) {}
		}
		spawn(t, srv.Loops()[0], start)
		testkit.Pass(time.Hour)
		if fired != 1 {
			t.Errorf("%d timers fired, want 1", fired)
		}
		b := spawn(t, srv.Loops()[0], start)
		testkit.Pass(0)
		resume := srv.Stall(0)
		testkit.Pass(time.Hour)
		b.Stop()
		resume()
		testkit.Pass(time.Hour)
		if fired != 1 {
			t.Errorf("%d timers fired after Stop", fired-1)
		}
	})
}

func TestActorTimerPanics(t *testing.T) {
	for _, every := range []bool{false, true} {
		t.Run(fmt.Sprint("every=", every), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				srv := startLines(t, 1, silent)
				var reason error
				fired := 0
				fail := func() { fired++; panic(io.ErrNoProgress) }
				a := spawn(t, srv.Loops()[0], func(a *handler.Actor[int]) func(int) {
					a.OnStop(func(err error) { reason = err })
					if every {
						a.Every(time.Second, fail)
					} else {
						a.AfterFunc(time.Second, fail)
					}
					return func(int) {}
				})
				testkit.Pass(time.Minute)
				testkit.WantErr(t, "reason", reason, io.ErrNoProgress)
				testkit.Want(t, "fired", fired, 1)
				testkit.Want(t, "srv.Stats().Panics", srv.Stats().Panics, 1)
				testkit.Want(t, "srv.Stats().Timers", srv.Stats().Timers, 0)
				wantTell(t, a, 1, handler.ErrStopped)
			})
		})
	}
}
