package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A hook that moves its own deadline must not be due again at once, or the loop never leaves it.
func TestHookResetsItself(t *testing.T) {
	var j *journal
	srv := &loop.Server{Accept: with(func(c *loop.Conn) {
		var timer loop.Timer
		timer = c.OnIdle(loop.IdleRead, 4*time.Second, func(n int) {
			note(&j, "read")(n)
			if len(j.entries) > 100 {
				timer.Stop()
				return
			}
			timer.Reset(2 * time.Second)
		})
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		srv.Open()
		wait(9 * time.Second)
		j.expect(t, "4s read 1", "6s read 1", "8s read 1")
	})
}

// A hook that adds another one, which is due at once, must let the loop serve its other
// connections.
func TestHookAddsHooksForEver(t *testing.T) {
	const many = 3000
	rounds, stop, spinning, written := 0, false, (chan struct{})(nil), (chan struct{})(nil)
	onStart := func(*loop.Loop) { spinning, written = make(chan struct{}), make(chan struct{}) }
	srv := &loop.Server{NumLoops: 1, OnStart: onStart, Accept: func(c *loop.Conn) loop.Handler {
		var again func(int)
		again = func(int) {
			if rounds++; rounds == 10 {
				close(spinning)
				<-written
			}
			if rounds < many && !stop {
				c.OnIdle(loop.IdleRead, time.Second, again)
			}
		}
		c.OnIdle(loop.IdleRead, time.Second, again)
		return script{Message: func(*loop.Conn, []byte) error { stop = true; return nil }}
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		go func() {
			<-spinning
			p.Write([]byte("x"))
			close(written)
		}()
		wait(1500 * time.Millisecond)
		if rounds >= many {
			t.Error("the loop did not look at its sockets")
		}
	})
}

// The firings are at least d apart also if the loop was late for one: who sends a ping at the first
// and gives up at the second must have given the peer that time.
func TestLateHookPutsOffTheNext(t *testing.T) {
	var j *journal
	srv := &loop.Server{Accept: with(func(c *loop.Conn) {
		c.OnIdle(loop.IdleRead, 10*time.Second, note(&j, "read"))
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		srv.Open()
		resume := srv.Stall(0)
		wait(19 * time.Second)
		resume()
		wait(21 * time.Second)
		j.expect(t, "19s read 1", "29s read 2", "39s read 3")
	})
}

func TestLateByManyPeriodsIsNoBurst(t *testing.T) {
	var j *journal
	srv := &loop.Server{Accept: with(func(c *loop.Conn) {
		c.OnIdle(loop.IdleRead, time.Second, note(&j, "read"))
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		srv.Open()
		resume := srv.Stall(0)
		wait(100 * time.Second)
		resume()
		wait(2500 * time.Millisecond)
		j.expect(t, "1m40s read 1", "1m41s read 2", "1m42s read 3")
	})
}

// Bytes that wait in the socket while the loop is blocked count as received.
func TestBytesInTheSocketPreventEviction(t *testing.T) {
	var j *journal
	srv := &loop.Server{
		IdleTimeout: 5 * time.Second,
		Accept: with(func(c *loop.Conn) {
			c.OnIdle(loop.IdleRead, 3*time.Second, note(&j, "read"))
			c.OnIdle(loop.IdleBoth, 3*time.Second, note(&j, "both"))
		}),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		j = newJournal()
		speaks, mute := srv.Open(), srv.Open()
		resume := srv.Stall(0)
		wait(time.Second)
		speaks.Send("x")
		wait(9 * time.Second)
		resume()
		if speaks.Ended() {
			t.Errorf("evicted with bytes in the socket: %v", speaks.Reason())
		}
		if !errors.Is(mute.Reason(), loop.ErrIdle) {
			t.Errorf("the silent one ended with %v", mute.Reason())
		}
		j.expect(t, "10s read 1", "10s both 1") // those of the silent one
	})
}

// checkIdle is reached before the read event if the timer's turn comes first; then only the look at
// the socket helps.
func TestBytesBehindTheTimersTurn(t *testing.T) {
	srv := &loop.Server{IdleTimeout: 5 * time.Second}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		srv.Do(0, func(l *loop.Loop) { // keeps the loop busy within a turn, just before the wheel's part of it
			_ = l.Post(func() {
				testkit.Block(10 * time.Second)
			})
		})
		wait(time.Second)
		p.Write([]byte("x"))
		wait(10 * time.Second)
		if p.Ended() {
			t.Errorf("evicted with bytes in the socket: %v", p.Reason())
		}
		wait(10 * time.Second)
		if !errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("ended with %v", p.Reason())
		}
	})
}

func TestTheEndInTheSocketCountsBeforeEviction(t *testing.T) {
	srv := &loop.Server{IdleTimeout: 5 * time.Second}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		resume := srv.Stall(0)
		p.Close()
		wait(time.Minute)
		resume()
		if p.Reason() == nil || errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("ended with %v, want io.EOF", p.Reason())
		}
	})
}

func TestJitterBounds(t *testing.T) {
	const timeout, jitter = 10 * time.Second, 5 * time.Second
	var ends []time.Duration
	var began time.Time
	srv := &loop.Server{
		IdleTimeout: timeout,
		Timeouts:    loop.Timeouts{IdleJitter: jitter},
		Accept: func(*loop.Conn) loop.Handler {
			return script{Close: func(*loop.Conn, error) { ends = append(ends, time.Since(began)) }}
		},
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		began = time.Now()
		for range 200 {
			srv.Open()
		}
		wait(time.Minute)
		if len(ends) != 200 {
			t.Fatalf("%d of 200 evicted", len(ends))
		}
		first, last := ends[0], ends[199]
		if first < timeout || last > timeout+jitter+time.Millisecond {
			t.Errorf("evicted between %v and %v", first, last)
		}
		if first > timeout+jitter/4 || last < timeout+jitter*3/4 {
			t.Errorf("all between %v and %v: not spread", first, last)
		}
	})
}

func TestSetIdleTimeoutFromAnyState(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		wait(time.Hour)
		set := func(d time.Duration) { tell(srv, p, func(c *loop.Conn) { c.SetIdleTimeout(d) }) }
		set(2 * time.Hour) // counted from the last byte: an hour is left
		wait(30 * time.Minute)
		set(0)
		wait(100 * time.Hour)
		p.Send("x")
		set(time.Minute)
		tell(srv, p, func(c *loop.Conn) {
			if when := c.Info().IdleDeadline; time.Until(when) != time.Minute {
				t.Errorf("IdleDeadline %v", when)
			}
		})
		wait(time.Minute - time.Nanosecond)
		if p.Ended() {
			t.Fatal("evicted early")
		}
		wait(time.Millisecond)
		if !errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("ended with %v", p.Reason())
		}
		tell(srv, p, func(c *loop.Conn) { t.Error("still among the connections") })
	})
}

func TestSetIdleTimeoutThatIsOverAlready(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		wait(time.Hour)
		tell(srv, p, func(c *loop.Conn) {
			c.SetIdleTimeout(time.Minute)
			if p.Ended() {
				t.Error("evicted inline")
			}
		})
		if !errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("ended with %v", p.Reason())
		}
	})
}

// Output that a peer takes counts though more was written since the last look at it, so that the
// kernel holds more than then.
func TestIdleCountsOutputBesideMore(t *testing.T) {
	srv := &loop.Server{IdleTimeout: time.Second, Timeouts: loop.Timeouts{IdleCountsOutput: true, Close: 100 * time.Millisecond}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(1000)
		send := func(n int) { tell(srv, p, func(c *loop.Conn) { _ = c.Send(make([]byte, n)) }) }
		send(100)
		wait(1500 * time.Millisecond) // it has looked after a second
		send(500)
		wait(700 * time.Millisecond)
		p.Take(200)
		wait(700 * time.Millisecond)
		testkit.Want(t, "closed 0.7 s after it took some", p.Ended(), false)
		wait(time.Second)
		testkit.Want(t, "closed after a timeout in which it took nothing", p.Ended(), true)
	})
}

func TestEvictionOfABlockedPeer(t *testing.T) {
	srv := &loop.Server{
		IdleTimeout: 5 * time.Second,
		Timeouts:    loop.Timeouts{Close: 3 * time.Second},
		Accept: with(func(c *loop.Conn) {
			c.AfterFunc(time.Second, func() { c.Send([]byte("never taken")) })
		}),
	}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		wait(8*time.Second - time.Nanosecond)
		if p.Ended() {
			t.Fatal("ended before the close timeout")
		}
		wait(time.Millisecond)
		if !errors.Is(p.Reason(), loop.ErrIdle) || !p.WasReset() {
			t.Errorf("ended with %v, reset %v", p.Reason(), p.WasReset())
		}
		if st := srv.Stats(); st.ClosedBy["idle"] != 1 || st.Cut != 1 {
			t.Errorf("stats %+v", st)
		}
	})
}

// Output that a peer takes is not its first byte.
func TestFirstByteTimeoutOfWhoOnlyReads(t *testing.T) {
	srv := &loop.Server{Timeouts: loop.Timeouts{FirstByte: 5 * time.Second, Close: time.Second}, Accept: with(func(c *loop.Conn) {
		c.PauseRead()
		c.AfterFunc(time.Second, func() { c.Send(make([]byte, 100)) })
	})}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(10)
		if wait(7 * time.Second); !errors.Is(p.Reason(), loop.ErrIdle) {
			t.Errorf("ended with %v", p.Reason())
		}
	})
}

// An eviction interrupts what a peer waits for that has ended its output, too.
func TestEvictionOfAHalfClosedPeer(t *testing.T) {
	for name, tc := range map[string]struct {
		onMessage func(c *loop.Conn)
		reset     bool
	}{
		"a job": {func(c *loop.Conn) {
			_ = loop.Offload(c, func(ctx context.Context) int { <-ctx.Done(); return 0 }, func(*loop.Conn, int) {})
		}, true},
		"busy": {func(c *loop.Conn) { c.OnEOF(func() {}); c.SetBusy(true) }, true},
		"recent output": {func(c *loop.Conn) {
			c.OnEOF(func() {})
			c.AfterFunc(50*time.Second, func() { _ = c.Send([]byte("more")) })
		}, true},
		"nothing": {func(c *loop.Conn) { c.OnEOF(func() {}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := looptest.Start(t, &loop.Server{IdleTimeout: time.Minute, Accept: func(c *loop.Conn) loop.Handler {
					return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error { tc.onMessage(c); return c.Send(msg) })
				}})
				p := srv.Open()
				p.Send("x")
				p.CloseWrite()
				srv.Sleep(2 * time.Minute)
				testkit.WantErr(t, "reason", p.Reason(), loop.ErrIdle)
				testkit.Want(t, "reset", p.WasReset(), tc.reset)
			})
		})
	}
}
