package loop

import (
	"cmp"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
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
		if ran != 300 || r.woken() != 0 || r.yielded() {
			t.Errorf("%d ran; the loop was woken for nothing", ran)
		}
	})
}

// What a turn has for another loop crosses when the turn ends, with one wake-up, in its order, and
// allocates nothing at a steady state.
func TestBatchWakesOnce(t *testing.T) {
	from, to := newRig(t, &Server{}, nil), newRig(t, &Server{}, HandlerFunc(echoAll))
	c, _, _ := to.connect()
	ref, order := c.Ref(), make([]int, 0, 1<<17)
	told, posted := func(*Conn) { order = append(order, 1) }, func() { order = append(order, 2) }
	const n = 2000
	turn := func() {
		from.enter()
		for range n {
			if err := cmp.Or(ref.TellFrom(from.Loop, told), to.PostFrom(from.Loop, posted)); err != nil {
				t.Fatal(err)
			}
		}
		if got := to.mail.Len() + int(to.woken()); got != 0 {
			t.Fatalf("%d functions and wake-ups before the turn has ended, want 0", got)
		}
		from.leave()
		if got := to.mail.Len(); got != 2*n {
			t.Fatalf("%d functions wait, want %d", got, 2*n)
		}
		if got := to.woken(); got != 1 {
			t.Fatalf("woken %d times, want 1", got)
		}
		for to.mail.Len() > 0 {
			to.turn()
		}
		for i := range 2 * n {
			if order[i] != i%2+1 {
				t.Fatalf("function %d is of kind %d, want %d", i, order[i], i%2+1)
			}
		}
		order = order[:0]
	}
	turn()
	small := func() {
		from.enter()
		for range 100 {
			_ = ref.TellFrom(from.Loop, told)
		}
		from.leave()
		to.turn()
		order = order[:0]
	}
	small()
	if got := testing.AllocsPerRun(100, small); got != 0 && !goroutine.Race {
		t.Errorf("%v allocations for 100 functions, want 0", got)
	}
}

// A process that was stopped kept its timers from running: its loops were away. A connection that
// is read before the loop has its turn was not read, either.
func TestAwayWhileStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, HandlerFunc(echoAll))
		c, _, _ := r.connect()
		r.enter()
		r.AfterFunc(time.Second, func() {})
		before := c.unread()
		r.leave()
		r.pass(5 * time.Second)
		r.enter()
		if got := c.unread() - before; got != 4*time.Second {
			t.Errorf("not read for %v, want 4 s", got)
		}
		r.leave()
		r.turn()
		if got := r.Away(); got != 4*time.Second {
			t.Errorf("away for %v, want 4 s", got)
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
			t.Fatalf("ran %v; the engine must not be woken from within OnWake", ran)
		}
		r.turn()
		if !ran || r.yielded() {
			t.Errorf("ran %v", ran)
		}
	})
}

// The loop reports the wheel's next deadline to the engine whenever it changes, and nothing else.
func TestTheNextDeadlineIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, nil)
		add := func(d time.Duration) (t Timer, changes int) {
			r.enter()
			t = r.AfterFunc(d, func() {})
			r.leave()
			_, changes = r.ticksAt()
			return t, changes
		}
		var second Timer
		for _, step := range []struct {
			d    time.Duration
			want int
		}{{time.Hour, 1}, {2 * time.Hour, 0}, {time.Hour, 0}, {time.Minute, 1}, {time.Second * 90, 0}, {time.Second, 1}} {
			timer, got := add(step.d)
			if second = timer; got != step.want {
				t.Errorf("a timer of %v changed the deadline %d times, want %d", step.d, got, step.want)
			}
		}
		r.enter()
		second.Stop()
		r.leave()
		if when, _ := r.ticksAt(); when < 50*time.Second {
			t.Errorf("the deadline is still %v", when)
		}
		if r.woken() != 0 {
			t.Error("the loop was woken although nothing is due")
		}
	})
}

// A tick advances the wheel and reports the deadline again, also if the loop has a turn to come.
func TestTickAdvancesTheWheel(t *testing.T) {
	for _, queued := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, &Server{}, nil)
			fired := 0
			r.enter()
			r.AfterFunc(time.Millisecond, func() { fired++ })
			r.AfterFunc(time.Hour, func() { fired++ })
			r.leave()
			r.pass(5 * time.Millisecond)
			r.eng.tick = never // the engine forgets it
			if queued {
				_ = r.Post(func() {})
			}
			host{r.Loop}.OnDeadline()
			if queued {
				if fired != 0 {
					t.Error("the turn that is coming has been forestalled")
				}
				host{r.Loop}.OnWake()
			}
			if when, _ := r.ticksAt(); fired != 1 || when == never || when < 30*time.Minute {
				t.Errorf("queued %v: %d timers have fired, the next tick is at %v", queued, fired, when)
			}
		})
	}
}

// A message to a connection with an idle timeout wakes nobody and moves no timer.
func TestMessagesWakeNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{IdleTimeout: time.Hour}, HandlerFunc(echoAll))
		_, s, _ := r.connect()
		r.ticksAt()
		cascaded := r.wheel.Stats()
		for range 1000 {
			s.Readable([]byte("x"))
		}
		if _, changes := r.ticksAt(); changes != 0 || r.woken() != 0 || r.wheel.Stats() != cascaded {
			t.Error("messages woke somebody, or moved a timer")
		}
	})
}

// A loop that is busy with I/O runs its timers without a tick, in a turn after a poll.
func TestIOAdvancesTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, HandlerFunc(echoAll))
		_, s, _ := r.connect()
		fired := 0
		for i := range 10 {
			r.AfterFunc(time.Millisecond, func() { fired++ })
			s.Readable([]byte("x")) // publishes
			if r.yielded() {
				t.Fatal("a turn was asked for, and nothing is due")
			}
			r.pass(5 * time.Millisecond)
			if s.Readable([]byte("x")); fired != i || !r.yielded() {
				t.Fatalf("%d timers fired in a turn for input of round %d; they need a turn of their own", fired, i)
			}
			if r.turn(); fired != i+1 {
				t.Fatalf("%d timers fired in round %d", fired, i)
			}
		}
	})
}

// A timer of the loop's own that tries a socket is part of the turn in which it fires, also after
// another one that has taken long: a turn never begins within another, nor does the wheel advance
// within itself.
func TestNoTurnWithinATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, HandlerFunc(echoAll))
		c, s, sock := r.connect()
		sock.room = 0
		s.Readable([]byte("x")) // what it echoes waits
		r.AfterFunc(time.Millisecond, func() { r.pass(2 * time.Millisecond) })
		c.tryAgain(false)
		r.pass(10 * time.Millisecond)
		sock.room = -1
		for range 3 {
			s.Readable([]byte("y"))
			r.turn()
		}
		if n := r.count[numPanics].Load(); n != 0 || r.nesting != 0 || c.pending() != 0 {
			t.Errorf("%d panics; %d turns have not ended; %d bytes wait", n, r.nesting, c.pending())
		}
	})
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
			c.stopAll()
			if c.timers != 0 {
				t.Error("a timer is left")
			}
		}
	})
}

// The last turn has no budget: what was taken runs, and what comes then is refused.
func TestTheLastTurnEmptiesTheMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &Server{}, nil)
		r.turnSlice = time.Nanosecond
		ran, refused := 0, 0
		for range 1000 {
			_ = r.Post(func() {
				if ran++; r.Post(func() { ran++ }) != nil {
					refused++
				}
			})
		}
		r.mayStop = true
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
