package loop

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/loopwheel/loopwheel/loop/internal/alarm"
)

// The first of a batch of posts wakes the loop, and no other does until the loop has been there.
func TestPostsWakeOncePerBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, nil)
		ran := 0
		for range 3 {
			for range 100 {
				if err := r.Post(func() { ran++ }); err != nil {
					t.Fatal(err)
				}
			}
			if n := r.woken(); n != 1 {
				t.Fatalf("100 posts woke the loop %d times", n)
			}
			r.turn()
		}
		if ran != 300 || r.woken() != 0 || r.kicked() || r.yielded() {
			t.Errorf("%d ran; the loop or the alarm was woken for nothing", ran)
		}
	})
}

// What a turn posts itself is done in a further turn: the loop looks at its sockets between.
func TestPostFromTheLoopComesBehindTheSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, nil)
		ran := false
		_ = r.Post(func() { _ = r.Post(func() { ran = true }) })
		r.woken()
		r.turn()
		if ran || r.woken() != 0 || !r.yielded() {
			t.Fatalf("ran %v; the engine must not be woken from within Turn", ran)
		}
		r.turn()
		if !ran || r.yielded() {
			t.Errorf("ran %v", ran)
		}
	})
}

// The alarm is woken by a deadline that is earlier than what it waits for, and by no other.
func TestOnlyEarlierDeadlinesWakeTheAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, nil)
		add := func(d time.Duration) bool {
			r.enter()
			r.AfterFunc(d, func() {})
			r.leave()
			woken := r.kicked()
			r.server.alarm.Ring() // as run does
			return woken
		}
		for _, step := range []struct {
			d    time.Duration
			want bool
		}{{time.Hour, true}, {2 * time.Hour, false}, {time.Hour, false}, {time.Minute, true}, {time.Second * 90, false}, {time.Second, true}} {
			if got := add(step.d); got != step.want {
				t.Errorf("a timer of %v woke the alarm: %v, want %v", step.d, got, step.want)
			}
		}
		if r.woken() != 0 {
			t.Error("the loop was woken although nothing is due")
		}
	})
}

// A deadline that has become later wakes nobody: the alarm finds out when it looks.
func TestLaterDeadlinesWakeNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, nil)
		r.enter()
		first := r.AfterFunc(time.Minute, func() {})
		r.AfterFunc(time.Hour, func() {})
		r.leave()
		r.kicked()
		r.server.alarm.Ring()
		r.enter()
		first.Stop()
		r.leave()
		if when := r.bell.(*alarm.Bell).Deadline(); when < 50*time.Minute {
			t.Fatalf("the deadline is still %v", when)
		}
		if r.kicked() || r.woken() != 0 {
			t.Error("a later deadline woke somebody")
		}
	})
}

// A message to a connection with an idle timeout wakes nobody and moves no timer.
func TestMessagesWakeNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{IdleTimeout: time.Hour}, HandlerFunc(echoAll))
		_, s, _ := r.connect()
		r.kicked()
		r.server.alarm.Ring()
		cascaded := r.wheel.Stats()
		for range 1000 {
			s.Readable([]byte("x"))
		}
		if r.kicked() || r.woken() != 0 || r.wheel.Stats() != cascaded {
			t.Error("messages woke somebody, or moved a timer")
		}
	})
}

// A loop that is busy with I/O runs its timers without being rung, though not with each packet.
func TestIOAdvancesTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, HandlerFunc(echoAll))
		_, s, _ := r.connect()
		fired := 0
		for i := range 10 {
			r.AfterFunc(time.Millisecond, func() { fired++ })
			s.Readable([]byte("x")) // publishes
			r.pass(5 * time.Millisecond)
			if s.Readable([]byte("x")); fired != i+1 {
				t.Fatalf("%d timers fired in round %d", fired, i)
			}
		}
	})
}

// An expiry storm is spread over turns, each of which keeps to its budget.
func TestExpiryStormIsSpreadOverTurns(t *testing.T) {
	r := newRig(t, &Server{TurnBudget: time.Nanosecond}, nil)
	const n = 10_000
	fired := 0
	for range n {
		r.AfterFunc(0, func() { fired++ })
	}
	r.pass(time.Millisecond)
	turns := 0
	for ; fired < n; turns++ {
		before := fired
		r.turn()
		if ran := fired - before; ran > timerBatch { // none, if timers were moved to a lower level instead
			t.Fatalf("turn %d ran %d callbacks, budget %d", turns, ran, timerBatch)
		}
		if fired < n && !r.yielded() {
			t.Fatalf("turn %d left work and told nobody", turns)
		}
	}
	if turns < n/timerBatch || turns > 3*n/timerBatch {
		t.Errorf("%d turns", turns)
	}
}

// A full mailbox is spread over turns, too, and does not keep the timers from theirs.
func TestMailIsSpreadOverTurns(t *testing.T) {
	r := newRig(t, &Server{TurnBudget: time.Nanosecond}, nil)
	ran, fired := 0, 0
	r.AfterFunc(0, func() { fired++ })
	r.pass(time.Millisecond)
	for range 1000 {
		_ = r.Post(func() { ran++ })
	}
	r.turn()
	if ran != mailBatch || fired != 1 || !r.yielded() {
		t.Errorf("%d tasks and %d timers ran in the first turn", ran, fired)
	}
	if n := r.mail.Len(); n != 1000-mailBatch {
		t.Errorf("%d wait", n)
	}
	for ran < 1000 {
		r.turn()
	}
}

// What has run must not be kept alive by the mailbox until somebody posts again.
func TestMailboxForgetsWhatHasRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, nil)
		var used weak.Pointer[byte]
		func() {
			big := make([]byte, 1<<20)
			used = weak.Make(&big[0])
			_ = r.Post(func() { big[0]++ })
		}()
		r.turn()
		for range 10 { // a collection may have begun before
			runtime.GC()
			if used.Value() == nil {
				runtime.KeepAlive(r)
				return
			}
		}
		t.Fatal("the mailbox keeps what a task used")
	})
}

// A second storm of timers needs no memory beyond that of the first.
func TestTimersOfAStormAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, HandlerFunc(echoAll))
		c, _, _ := r.connect()
		kept := 0
		for range 3 {
			for range 100_000 {
				c.AfterFunc(time.Hour, func() {})
			}
			if kept != 0 && len(r.timers) != kept {
				t.Errorf("%d timers are kept, and %d were before", len(r.timers), kept)
			}
			kept = len(r.timers)
			c.stopTimers()
			if c.timers != 0 {
				t.Error("a timer is left")
			}
		}
	})
}

// The last turn has no budget: what was taken runs, and what comes then is refused.
func TestTheLastTurnEmptiesTheMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{TurnBudget: time.Nanosecond}, nil)
		ran, refused := 0, 0
		for range 1000 {
			_ = r.Post(func() {
				if ran++; r.Post(func() { ran++ }) != nil {
					refused++
				}
			})
		}
		r.ending = true
		r.turn()
		if ran+refused != 2000 || ran < 1000 || r.mail.Len() != 0 {
			t.Errorf("%d ran, %d were refused, %d wait", ran, refused, r.mail.Len())
		}
		if err := r.Post(func() {}); err != ErrServerClosed {
			t.Errorf("Post after the end: %v", err)
		}
		r.turn() // one that was on its way does nothing
	})
}
