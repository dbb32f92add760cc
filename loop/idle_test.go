package loop_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// note returns a hook that writes its name and n into the journal.
func note(j **journal, name string) func(n int) {
	return func(n int) { (*j).at(fmt.Sprint(name, " ", n)) }
}

func TestIdleReadFiresEachDAndCounts(t *testing.T) {
	var j *journal
	srv := &loop.Server{Accept: with(func(c *loop.Conn) { c.OnIdle(loop.IdleRead, 10*time.Second, note(&j, "read")) })}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := srv.Open()
		wait(25 * time.Second)
		p.Send("x") // at 25 s
		wait(10*time.Second - time.Nanosecond)
		j.expect(t, "10s read 1", "20s read 2")
		wait(15 * time.Second)
		j.expect(t, "10s read 1", "20s read 2", "35s read 1", "45s read 2")
	})
}

func TestIdleTimeoutIsExact(t *testing.T) {
	srv := &loop.Server{IdleTimeout: 7 * time.Second}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		for range 10 {
			wait(7*time.Second - time.Nanosecond)
			p.Send("x")
		}
		wait(7*time.Second - time.Nanosecond)
		if p.Ended() {
			t.Fatal("evicted early")
		}
		wait(time.Millisecond)
		if !errors.Is(p.Reason(), loop.ErrIdle) || p.WasReset() {
			t.Errorf("reason %v, reset %v", p.Reason(), p.WasReset())
		}
	})
}

func TestHooksOfSeveralKinds(t *testing.T) {
	var j *journal
	srv := &loop.Server{
		Codec: codec.Lines{},
		Accept: func(c *loop.Conn) loop.Handler {
			c.OnIdle(loop.IdleRead, 5*time.Second, note(&j, "read"))
			c.OnIdle(loop.IdleWrite, 4*time.Second, note(&j, "write"))
			c.OnIdle(loop.IdleBoth, 3*time.Second, note(&j, "both"))
			return script{Message: echo}
		},
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := srv.Open()
		wait(2 * time.Second)
		p.Send("x\n") // reads and writes at 2 s
		wait(3500 * time.Millisecond)
		j.expect(t, "5s both 1")
		tell(srv, p, func(c *loop.Conn) { c.Send(nil) }) // writes at 5.5 s
		wait(2 * time.Second)
		j.expect(t, "5s both 1", "7s read 1")
		p.Send("half a line") // reads at 7.5 s
		wait(4 * time.Second)
		j.expect(t, "5s both 1", "7s read 1", "9.5s write 1", "10.5s both 1")
	})
}

func TestHooksBeforeEvictionInOrder(t *testing.T) {
	var j *journal
	srv := &loop.Server{
		IdleTimeout: 10 * time.Second,
		Accept: func(c *loop.Conn) loop.Handler {
			c.OnIdle(loop.IdleRead, 10*time.Second, note(&j, "same"))
			c.OnIdle(loop.IdleRead, 10*time.Second, note(&j, "same again"))
			c.OnIdle(loop.IdleRead, 9*time.Second, note(&j, "earlier"))
			return script{Close: func(_ *loop.Conn, err error) { j.at(err.Error()) }}
		},
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		srv.Open()
		wait(time.Minute)
		j.expect(t, "9s earlier 1", "10s same 1", "10s same again 1", "10s "+loop.ErrIdle.Error())
	})
}

func TestHookAfterTheTimeoutNeverRuns(t *testing.T) {
	var j *journal
	srv := &loop.Server{
		IdleTimeout: 5 * time.Second,
		Accept:      with(func(c *loop.Conn) { c.OnIdle(loop.IdleRead, 8*time.Second, note(&j, "late")) }),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		p := srv.Open()
		resume := srv.Stall(0)
		wait(20 * time.Second) // both are due when the loop comes back
		resume()
		if !errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("reason %v", p.Reason())
		}
		j.expect(t)
	})
}

func TestHookSavesItsConnection(t *testing.T) {
	srv := &loop.Server{
		IdleTimeout: 5 * time.Second,
		Accept: with(func(c *loop.Conn) {
			c.OnIdle(loop.IdleRead, 5*time.Second, func(int) { c.SetIdleTimeout(8 * time.Second) })
		}),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		wait(8*time.Second - time.Nanosecond)
		if p.Ended() {
			t.Fatal("evicted by a timeout that the hook had changed")
		}
		wait(time.Millisecond)
		if !errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("reason %v", p.Reason())
		}
	})
}

func TestHookStopsItself(t *testing.T) {
	fired, stopped := 0, false
	srv := &loop.Server{Accept: with(func(c *loop.Conn) {
		var timer loop.Timer
		timer = c.OnIdle(loop.IdleRead, time.Second, func(n int) {
			fired++
			if n == 3 {
				stopped = timer.Stop()
			}
		})
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		srv.Open()
		wait(time.Minute)
		if fired != 3 || !stopped {
			t.Errorf("fired %d times, Stop returned %v", fired, stopped)
		}
		if n := srv.Stats().Timers; n != 0 {
			t.Errorf("%d timers are left", n)
		}
	})
}

func TestHookCloses(t *testing.T) {
	var j *journal
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		c.OnIdle(loop.IdleRead, time.Second, func(int) { c.Close(); j.at("closing") })
		c.OnIdle(loop.IdleRead, time.Second, note(&j, "another"))
		c.SetIdleTimeout(time.Second)
		return script{Close: func(_ *loop.Conn, err error) { j.at(fmt.Sprint("closed ", err)) }}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		srv.Open()
		wait(time.Minute)
		j.expect(t, "1s closing", "1s closed <nil>")
	})
}

func TestHookPanics(t *testing.T) {
	srv := &loop.Server{Accept: with(func(c *loop.Conn) {
		c.OnIdle(loop.IdleRead, time.Second, func(int) { panic("hook") })
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		wait(time.Minute)
		var pe *loop.PanicError
		if !errors.As(p.Reason(), &pe) || pe.Value != "hook" || len(pe.Stack) == 0 {
			t.Errorf("reason %v", p.Reason())
		}
		if n := srv.Stats().Panics; n != 1 {
			t.Errorf("%d panics counted", n)
		}
	})
}

func TestResetOfAHook(t *testing.T) {
	var j *journal
	var timer loop.Timer
	srv := &loop.Server{Accept: with(func(c *loop.Conn) {
		timer = c.OnIdle(loop.IdleRead, 10*time.Second, note(&j, "read"))
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		srv.Open()
		reset := func(d time.Duration) {
			srv.Do(0, func(*loop.Loop) {
				if !timer.Reset(d) {
					t.Error("Reset of a hook returned false")
				}
			})
		}
		wait(4 * time.Second)
		reset(6 * time.Second) // counted from the last activity: at 6 s, then 12 s
		wait(9 * time.Second)
		j.expect(t, "6s read 1", "12s read 2")
		reset(20 * time.Second) // at 20 s, as n = 1
		wait(10 * time.Second)
		j.expect(t, "6s read 1", "12s read 2", "20s read 1")
		srv.Do(0, func(*loop.Loop) {
			if v := panics(func() { timer.Reset(0) }); v == nil {
				t.Error("Reset(0) of a hook did not panic")
			}
		})
	})
}
