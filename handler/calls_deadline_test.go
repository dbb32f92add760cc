package handler_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// Calls end in time however many do at once. A microsecond passes in each of them: in looptest no
// time does otherwise, so that whatever is put off until later comes at once.
func TestCallsManyEndInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const turns, each = 5, 2000
		k := newCaller(t, handler.CallConfig{Timeout: time.Second, Max: turns * each})
		ended := 0
		for range turns {
			k.do(func() {
				due := time.Now().Add(time.Second)
				for i := range each {
					_, err := k.calls.Begin(0, func(_ string, err error) {
						late := time.Since(due) - time.Duration(i)*time.Microsecond
						if late < 0 || late > time.Millisecond || err != handler.ErrCallTimeout {
							t.Errorf("call %d ended %v late, with %v", i, late, err)
						}
						ended++
						testkit.Block(time.Microsecond)
					})
					if err != nil {
						t.Fatal(err)
					}
				}
			})
			testkit.Pass(5 * time.Millisecond)
		}
		testkit.Pass(time.Second)
		if ended != turns*each {
			t.Errorf("%d of %d calls have ended", ended, turns*each)
		}
	})
}

// Between calls that time out together the loop looks at its sockets: who says something meanwhile
// waits for a stretch of them, not for all.
func TestCallsEndInStretches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 2000
		ended, heard := 0, -1
		var calls *handler.Calls[string]
		srv := startLines(t, 1, func(c *loop.Conn) loop.Handler {
			calls = handler.NewCalls[string](c, handler.CallConfig{Timeout: time.Second, Max: n})
			return loop.HandlerFunc(func(*loop.Conn, []byte) error { heard = ended; return nil })
		})
		peer := srv.Open()
		srv.Do(0, func(*loop.Loop) {
			for range n {
				_, _ = calls.Begin(0, func(string, error) {
					if ended++; ended == 1 {
						go peer.Write([]byte("meanwhile\n"))
					}
					testkit.Block(10 * time.Microsecond)
				})
			}
		})
		testkit.Pass(2 * time.Second)
		if ended != n {
			t.Errorf("%d of %d calls have ended", ended, n)
		}
		if heard < 0 || heard > 200 { // a turn is a millisecond at most, and then a stretch is begun
			t.Errorf("%d calls had ended when the message was handled", heard)
		}
	})
}

// What is kept is bounded by how many calls are under way, not by how many there were since the
// oldest of them was begun.
func TestCallsForgetDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		k := newCaller(t, handler.CallConfig{})
		before := k.srv.Stats().Timers
		oldest, odd := uint64(0), uint64(0)
		k.do(func() { oldest = k.begin(t, time.Hour) })
		k.do(func() { odd = k.begin(t, 50*time.Minute) })
		for i := range 1000 {
			k.do(func() {
				a, b := k.begin(t, time.Hour), k.begin(t, time.Hour)
				if i != 500 { // these stay
					k.calls.Answer(b, "yes")
					k.calls.Answer(a, "yes")
				}
			})
		}
		testkit.Pass(0)
		if n := k.srv.Stats().Timers - before; n > 4 {
			t.Errorf("%d timers for 4 calls", n)
		}
		testkit.Pass(2 * time.Hour)
		k.want(t, oldest, "", handler.ErrCallTimeout, time.Hour)
		k.want(t, odd, "", handler.ErrCallTimeout, 50*time.Minute)
		want := handler.CallStats{Begun: 2002, Answered: 1998, TimedOut: 4}
		k.do(func() {
			if got := k.calls.Stats(); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	})
}
