package alarm

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// A loop is what the alarm serves, without anything else: deadlines, and turns in which those that
// are due fire.
type loop struct {
	bell   *Bell
	clock  func() time.Duration
	turns  chan struct{}
	due    []time.Duration // what the loop waits for
	fired  int
	rounds int // turns
}

// turn is what Loop.turn does, as far as the alarm is concerned.
func (l *loop) turn() {
	l.rounds++
	l.bell.Clear()
	now, next := l.clock(), Never
	rest := l.due[:0]
	for _, d := range l.due {
		if d <= now {
			l.fired++
			continue
		}
		rest = append(rest, d)
		next = min(next, d)
	}
	l.due = rest
	l.bell.Publish(next)
}

func newTest(n int) (*Alarm, []*loop, func() time.Duration) {
	base := time.Now()
	clock := func() time.Duration { return time.Since(base) }
	a := New(clock)
	loops := make([]*loop, n)
	for i := range loops {
		l := &loop{clock: clock, turns: make(chan struct{}, 1)}
		wake := func() {
			select {
			case l.turns <- struct{}{}:
			default:
			}
		}
		l.bell = a.Bell(wake)
		loops[i] = l
	}
	return a, loops, clock
}

// Each loop gets its turn at each of its deadlines, and none in between.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, loops, clock := newTest(3)
		go a.Run()
		add := func(l *loop, d time.Duration) {
			l.due = append(l.due, clock()+d)
			l.turn()
		}
		take := func(l *loop) {
			select {
			case <-l.turns:
				l.turn()
			default:
			}
		}
		r := rand.New(rand.NewPCG(seed.Pick(t, 1), 2))
		for range 500 {
			l := loops[r.IntN(3)]
			before := l.rounds
			add(l, time.Duration(1+r.IntN(1000))*time.Millisecond)
			if l.rounds != before+1 {
				t.Fatal("the test is wrong")
			}
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			synctest.Wait()
			for _, l := range loops {
				take(l)
				for _, d := range l.due {
					if d <= clock() {
						t.Fatalf("at %v a deadline of %v has had no turn", clock(), d)
					}
				}
			}
		}
		a.Stop()
	})
}

// Only a deadline that is earlier than the alarm's plan wakes it.
func TestOnlyEarlierDeadlinesWake(t *testing.T) {
	a, loops, clock := newTest(2)
	b := loops[0].bell
	for _, step := range []struct {
		d    time.Duration
		want bool
	}{{time.Hour, true}, {2 * time.Hour, false}, {time.Hour, true}, {time.Minute, true}, {time.Hour, false}} {
		b.Publish(clock() + step.d)
		if got := a.Kicked(); got != step.want {
			t.Errorf("a deadline in %v woke the alarm: %v", step.d, got)
		}
		a.Ring()
	}
	b.Clear()
	a.Ring()
	if b.Deadline() != Never || len(loops[0].turns) != 0 {
		t.Error("a deadline that was cleared is still there")
	}
}

// A deadline that is published while the alarm looks at its bells, and has passed this one, is not
// missed: it does not kick, as the alarm's plan is still the one that has just come true.
func TestDeadlineWithinALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		clock := func() time.Duration { return time.Since(began) }
		a := New(clock)
		var rang []time.Duration
		first := a.Bell(func() { rang = append(rang, clock()) })
		second := a.Bell(func() { first.Publish(11 * time.Second) })
		first.Publish(time.Hour)
		second.Publish(10 * time.Second)
		go a.Run()
		time.Sleep(time.Minute)
		synctest.Wait()
		if a.Stop(); len(rang) != 1 || rang[0] != 11*time.Second {
			t.Errorf("it rang at %v, want 11s", rang)
		}
	})
}
