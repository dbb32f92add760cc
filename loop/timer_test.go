package loop_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A timer that adds itself again at once and panics, for ever, must not keep the loop from its
// sockets.
func TestTimerThatPanicsForEver(t *testing.T) {
	const many = 20_000
	rounds, stop := 0, false
	srv := &loop.Server{Accept: func(*loop.Conn) loop.Handler {
		return script{Message: func(*loop.Conn, []byte) error { stop = true; return nil }}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		spinning, written := make(chan struct{}), make(chan struct{})
		srv.Do(0, func(l *loop.Loop) {
			var again func()
			again = func() {
				if rounds++; rounds == 10 {
					close(spinning)
					<-written
				}
				if rounds < many && !stop {
					l.AfterFunc(0, again)
					panic("again")
				}
			}
			l.AfterFunc(time.Second, again)
		})
		go func() {
			<-spinning
			p.Write([]byte("x"))
			close(written)
		}()
		wait(2 * time.Second)
		if rounds >= many {
			t.Error("the loop did not look at its sockets")
		}
	})
}

func TestTimersFireExactlyAndInOrder(t *testing.T) {
	var j *journal
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		wait(time.Hour) // so that the largest delay is later than any clock
		j = newJournal()
		srv.Do(0, func(l *loop.Loop) {
			l.AfterFunc(20*time.Millisecond, func() { j.at("c") })
			l.AfterFunc(10*time.Millisecond, func() { j.at("a") })
			l.AfterFunc(10*time.Millisecond, func() { j.at("b") })
			l.AfterFunc(0, func() { j.at("now") })
			l.AfterFunc(-time.Hour, func() { j.at("long ago") })
			l.AfterFunc(math.MaxInt64, func() { j.at("never") })
			l.AfterFunc(math.MinInt64, func() { j.at("before time") })
			j.at("not inline")
		})
		wait(time.Hour)
		j.expect(t, "0s not inline", "0s now", "0s long ago", "0s before time", "10ms a", "10ms b", "20ms c")
	})
}

func TestTimerIsNeverEarly(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		wait(333 * time.Microsecond) // not on a tick
		for d := time.Duration(1); d < 40*time.Millisecond; d = d*3/2 + 1 {
			var began time.Time
			var took time.Duration
			srv.Do(0, func(l *loop.Loop) {
				began = l.Now()
				l.AfterFunc(d, func() { took = l.Now().Sub(began) })
			})
			wait(time.Second)
			if took < d || took >= d+time.Millisecond {
				t.Errorf("a timer of %v fired after %v", d, took)
			}
		}
	})
}

func TestEverySkipsWhatAStallMissed(t *testing.T) {
	var j *journal
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		var timer loop.Timer
		srv.Do(0, func(l *loop.Loop) { timer = l.Every(10*time.Millisecond, func() { j.at("every") }) })
		wait(25 * time.Millisecond)
		resume := srv.Stall(0)
		wait(52 * time.Millisecond) // to 77 ms
		resume()
		wait(20 * time.Millisecond)
		j.expect(t, "10ms every", "20ms every", "77ms every", "80ms every", "90ms every")
		srv.Do(0, func(*loop.Loop) {
			if !timer.Stop() || timer.Stop() || timer.Reset(time.Second) {
				t.Error("Stop, Stop and Reset: want true, false, false")
			}
		})
		wait(time.Second)
		j.expect(t, "10ms every", "20ms every", "77ms every", "80ms every", "90ms every")
	})
}

func TestEveryDoesNotDrift(t *testing.T) {
	n := 0
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		srv.Do(0, func(l *loop.Loop) { l.Every(1500*time.Microsecond, func() { n++ }) })
		wait(1500*time.Microsecond*1000 + time.Millisecond)
		if n != 1000 {
			t.Errorf("%d firings in 1000 periods", n)
		}
	})
}

func TestStopAndResetInOwnCallback(t *testing.T) {
	check := func(t *testing.T, after, every func(time.Duration, func()) loop.Timer) {
		var a, e loop.Timer
		fired := 0
		a = after(time.Second, func() {
			if a.Stop() || a.Reset(time.Second) {
				t.Error("a timer that fires can be stopped or reset")
			}
		})
		e = every(time.Second, func() {
			switch fired++; fired {
			case 1:
				if !e.Reset(5 * time.Second) {
					t.Error("Every cannot be reset by its own callback")
				}
			case 3:
				if !e.Stop() || e.Stop() {
					t.Error("Every cannot be stopped by its own callback, or twice")
				}
			case 4:
				t.Error("fired after Stop")
			}
		})
	}
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		srv.Do(0, func(l *loop.Loop) { check(t, l.AfterFunc, l.Every) })
		tell(srv, p, func(c *loop.Conn) { check(t, c.AfterFunc, c.Every) })
		wait(time.Hour)
		if n := srv.Stats().Timers; n != 0 {
			t.Errorf("%d timers are left", n)
		}
	})
}

func TestResetMoves(t *testing.T) {
	var j *journal
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			l := c.Loop()
			sooner := l.AfterFunc(time.Hour, func() { j.at("sooner") })
			later := c.AfterFunc(time.Second, func() { j.at("later") })
			at := c.AfterFunc(time.Second, func() { j.at("at once") })
			every := c.Every(time.Second, func() { j.at("every") })
			for timer, d := range map[loop.Timer]time.Duration{sooner: 3 * time.Second, later: 4 * time.Second, at: -1, every: 1500 * time.Millisecond} {
				if !timer.Reset(d) {
					t.Error("Reset of a pending timer returned false")
				}
			}
			j.at("not inline")
		})
		wait(4 * time.Second)
		j.expect(t, "0s not inline", "0s at once", "1.5s every", "2.5s every", "3s sooner", "3.5s every", "4s later")
	})
}

func TestSelfReaddingTimer(t *testing.T) {
	n := 0
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		srv.Do(0, func(l *loop.Loop) {
			var again func()
			again = func() {
				if n++; n < 10_000 {
					l.AfterFunc(0, again)
				}
			}
			again()
		})
		if n != 10_000 {
			t.Errorf("ran %d times", n)
		}
	})
}

func TestTimersDieWithTheConnection(t *testing.T) {
	bubble(t, &loop.Server{IdleTimeout: time.Hour}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		var timers []loop.Timer
		tell(srv, p, func(c *loop.Conn) {
			dead := func() { t.Error("a timer outlived its connection") }
			timers = append(timers,
				c.AfterFunc(time.Second, dead), c.Every(time.Second, dead),
				c.OnIdle(loop.IdleRead, time.Second, func(int) { dead() }))
			c.Close()
			if c.AfterFunc(1, dead) != (loop.Timer{}) || c.Every(1, dead) != (loop.Timer{}) ||
				c.OnIdle(loop.IdleRead, 1, func(int) { dead() }) != (loop.Timer{}) {
				t.Error("after Close a timer that is not zero was returned")
			}
		})
		wait(time.Minute)
		srv.Do(0, func(*loop.Loop) {
			for i, timer := range timers {
				if timer.Stop() || timer.Reset(1) {
					t.Errorf("timer %d could be stopped or reset", i)
				}
			}
		})
		if n := srv.Stats().Timers; n != 0 {
			t.Errorf("%d timers are left", n)
		}
	})
}

// A handle that is stale must never touch what its record, or its node of the wheel, serves now.
func TestStaleTimersTouchNothing(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		fired := 0
		var stale []loop.Timer
		poke := func() {
			for _, timer := range stale {
				if timer.Stop() || timer.Reset(time.Hour) {
					t.Error("a stale timer touched something")
				}
			}
		}
		for round := range 20 {
			p := srv.Open()
			tell(srv, p, func(c *loop.Conn) {
				a, b := c.AfterFunc(time.Second, func() { fired++ }), c.Every(time.Second, func() { fired++ })
				h := c.OnIdle(loop.IdleRead, time.Second, func(int) { fired++ })
				g := c.Loop().AfterFunc(time.Second, func() { fired++ })
				poke()
				stale = append(stale, a, b, h, g)
			})
			wait(time.Second)
			tell(srv, p, func(c *loop.Conn) { c.Close() })
			if want := 4 * (round + 1); fired != want {
				t.Fatalf("%d firings after round %d, want %d", fired, round, want)
			}
		}
		srv.Do(0, func(*loop.Loop) { poke() })
	})
}

func TestTimerIsComparableAndZeroIsHarmless(t *testing.T) {
	var zero loop.Timer
	if zero.Stop() || zero.Reset(time.Second) { // on any goroutine
		t.Error("the zero Timer was pending")
	}
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			f := func() {}
			seen := map[loop.Timer]bool{
				zero: true, c.AfterFunc(1, f): true, c.AfterFunc(1, f): true,
				c.Loop().AfterFunc(1, f): true, c.Loop().AfterFunc(1, f): true,
			}
			if len(seen) != 5 {
				t.Errorf("%d different timers, want 5", len(seen))
			}
		})
	})
}

func TestPanicsOfTimers(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		n := 0
		srv.Do(0, func(l *loop.Loop) { l.Every(time.Second, func() { n++; panic("each time") }) })
		tell(srv, p, func(c *loop.Conn) { c.AfterFunc(time.Second, func() { panic("p") }) })
		wait(3 * time.Second)
		var pe *loop.PanicError
		if !errors.As(p.Reason(), &pe) || pe.Value != "p" || q.Ended() {
			t.Errorf("reason %v, the other ended: %v", p.Reason(), q.Ended())
		}
		if n != 3 {
			t.Errorf("a periodic timer of the loop that panics ran %d times, want 3", n)
		}
	})
}

func TestTimersOfNilAndZeroPanic(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			l, f := c.Loop(), func() {}
			for what, call := range map[string]func(){
				"Loop.AfterFunc":      func() { l.AfterFunc(1, nil) },
				"Loop.Every":          func() { l.Every(0, f) },
				"Loop.Every with":     func() { l.Every(1, nil) },
				"Loop.Post":           func() { _ = l.Post(nil) },
				"Conn.AfterFunc":      func() { c.AfterFunc(1, nil) },
				"Conn.Every":          func() { c.Every(-1, f) },
				"Conn.Every with":     func() { c.Every(1, nil) },
				"Conn.OnIdle":         func() { c.OnIdle(loop.IdleRead, 1, nil) },
				"Conn.OnIdle with":    func() { c.OnIdle(loop.IdleRead, 0, func(int) {}) },
				"unknown kind":        func() { c.OnIdle(loop.WriteStalled+1, 1, func(int) {}) },
				"Conn.SetIdleTimeout": func() { c.SetIdleTimeout(-1) },
				"Conn.AfterClose":     func() { c.AfterClose(nil) },
				"Ref.Tell":            func() { _ = c.Ref().Tell(nil) },
			} {
				mustPanicWith(t, what, call)
			}
		})
	})
}

// Every period of an Every is called, of whatever ratio to the wheel's tick it is.
func TestEveryKeepsEachPeriod(t *testing.T) {
	const periods = 10_000
	for _, tenths := range []time.Duration{10, 15, 20, 100, 10_000} {
		period := tenths * time.Millisecond / 10
		bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
			wait(333 * time.Microsecond) // not on a tick
			calls := 0
			var begin time.Time
			srv.Do(0, func(l *loop.Loop) {
				begin = l.Now()
				l.Every(period, func() {
					calls++
					if late := l.Now().Sub(begin) - time.Duration(calls)*period; late < 0 || late >= time.Millisecond {
						t.Errorf("period %v: call %d is late by %v", period, calls, late)
					}
				})
			})
			wait(periods*period + time.Millisecond)
			if calls < periods || calls > periods+1 {
				t.Errorf("period %v: %d calls in %d periods", period, calls, periods)
			}
		})
	}
}

// Timers that fall due while their connection is frozen are pending until it goes on, and fire
// then, once: what runs before them, as a Tell that has waited, can stop and move them.
func TestTimersOfAFrozenConnection(t *testing.T) {
	fired := make(map[string]int)
	counts := func(name string) func() { return func() { fired[name]++ } }
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		srv.Open()
		var c *loop.Conn
		var stopped, moved, late, every, twice, gone loop.Timer
		srv.Do(0, func(l *loop.Loop) {
			for c = range l.Conns() {
			}
			stopped, moved, late = c.AfterFunc(time.Second, counts("stopped")), c.AfterFunc(time.Second, counts("moved")), c.AfterFunc(time.Second, counts("late"))
			every, twice = c.Every(time.Second, counts("every")), c.AfterFunc(time.Second, counts("twice"))
			if err := loop.Freeze(c); err != nil {
				t.Fatal(err)
			}
			gone = c.AfterFunc(time.Second, counts("gone"))
			l.AfterFunc(2*time.Second, func() { twice.Reset(time.Second) })
			c.Ref().Tell(func(*loop.Conn) {
				if !stopped.Stop() || stopped.Stop() || stopped.Pending() {
					t.Error("a timer that is due could not be stopped, or twice")
				}
				if !moved.Reset(time.Second) {
					t.Error("a timer that is due could not be moved")
				}
			})
		})
		wait(5500 * time.Millisecond)
		srv.Do(0, func(*loop.Loop) {
			if len(fired) != 0 || !late.Pending() || !every.Pending() || !twice.Pending() || !gone.Stop() {
				t.Errorf("fired while frozen: %v; or not pending", fired)
			}
			loop.Thaw(c)
		})
		wait(10 * time.Millisecond)
		srv.Do(0, func(*loop.Loop) {
			if fired["late"] != 1 || fired["every"] != 1 || fired["twice"] != 1 || late.Pending() || len(fired) != 3 {
				t.Errorf("fired when it goes on: %v, want late, every and twice once", fired)
			}
		})
		wait(1100 * time.Millisecond)
		srv.Do(0, func(*loop.Loop) {
			if fired["moved"] != 1 || fired["every"] != 2 || fired["late"] != 1 || fired["stopped"]+fired["gone"] != 0 {
				t.Errorf("fired a second later: %v, want moved once, and every twice", fired)
			}
		})
	})
}
