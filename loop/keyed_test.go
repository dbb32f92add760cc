package loop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
	"github.com/loopwheel/loopwheel/timing"
)

func TestKeyedOnALoop(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		j := newJournal()
		var k *loop.Keyed[string, int]
		srv.Do(0, func(l *loop.Loop) {
			k = loop.NewKeyed(l, func(expired []timing.Entry[string, int]) {
				for _, e := range expired {
					j.at(fmt.Sprint(e.Key, e.Value))
					if e.Value == 3 {
						k.Set("again", 4, time.Second)
						panic("in expire")
					}
				}
			})
			k.Set("a", 1, time.Second)
			k.Set("b", 2, time.Second)
			k.Set("c", 3, 3*time.Second)
			k.Set("d", 4, time.Hour)
		})
		wait(500 * time.Millisecond)
		srv.Do(0, func(*loop.Loop) {
			if !k.Move("b", 1500*time.Millisecond) || k.Move("x", 0) {
				t.Error("Move: want true, false")
			}
			if v, ok := k.Get("a"); v != 1 || !ok || k.Len() != 4 {
				t.Errorf("Get %d, %v; Len %d", v, ok, k.Len())
			}
			if v, ok := k.Remove("d"); v != 4 || !ok {
				t.Errorf("Remove %d, %v", v, ok)
			}
		})
		wait(time.Minute)
		j.expect(t, "1s a1", "2s b2", "3s c3", "4s again4")
		srv.Do(0, func(*loop.Loop) {
			k.Set("e", 5, time.Second)
			if n := k.Drain(nil); n != 1 {
				t.Errorf("Drain: %d", n)
			}
		})
		wait(time.Minute)
		j.expect(t, "1s a1", "2s b2", "3s c3", "4s again4")
	})
}

// A loop-local cache: each loop has its own, so none needs a lock.
func ExampleKeyed() {
	cache := loop.NewLocal(func(l *loop.Loop) *loop.Keyed[string, string] {
		return loop.NewKeyed[string, string](l, nil)
	})
	echo := func(c *loop.Conn, msg []byte) error {
		users := *cache.Get(c.Loop())
		name, ok := users.Get(string(msg))
		if !ok {
			name = "looked up"
			users.Set(string(msg), name, time.Minute)
		}
		return c.Send([]byte(name))
	}
	_ = &loop.Server{Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	// Output:
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
