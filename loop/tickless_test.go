package loop_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// counted makes srv a server of one loop whose wakes are counted.
func counted(srv *loop.Server) (wakes func() int64) {
	var n *atomic.Int64
	srv.OnStart = func(*loop.Loop) { n = loop.CountWakes(srv) }
	return func() int64 { return n.Swap(0) }
}

// A server with nothing due makes no wake-ups, however many connections it has.
func TestIdleServerIsNotWoken(t *testing.T) {
	srv := &loop.Server{IdleTimeout: 1000 * time.Hour}
	wakes := counted(srv)
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		wait(24 * time.Hour)
		if n := wakes(); n != 0 {
			t.Errorf("an empty server was woken %d times in a day", n)
		}
		for range 100 {
			srv.Open()
		}
		wait(time.Second)
		wakes()
		wait(24 * time.Hour)
		if n := wakes(); n > 3 { // steps of the wheel, which serve all of the timers
			t.Errorf("100 silent connections woke it %d times in a day", n)
		}
	})
}

// Activity moves no timer: a connection that always speaks costs one wake in each idle timeout.
func TestABusyConnectionIsWokenOncePerTimeout(t *testing.T) {
	srv := &loop.Server{IdleTimeout: time.Minute}
	wakes := counted(srv)
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		wakes()
		for range 6000 { // ten minutes
			wait(100 * time.Millisecond)
			p.Send("x")
		}
		if n := wakes(); n > 10*4 {
			t.Errorf("%d wakes in ten timeouts", n)
		}
	})
}

// Timers at times that are far apart cost wakes in proportion to them, not to time.
func TestWakesAreForTimers(t *testing.T) {
	srv := &loop.Server{}
	wakes := counted(srv)
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		n := 0
		srv.Do(0, func(l *loop.Loop) { l.Every(time.Hour, func() { n++ }) })
		wakes()
		wait(1000 * time.Hour)
		if got := wakes(); n != 1000 || got > 1000*5 {
			t.Errorf("%d firings, %d wakes", n, got)
		}
	})
}

// Random timers on several loops, set by their own callbacks and from outside, are never early,
// never lost, and late by less than a tick.
func TestTickModel(t *testing.T) {
	first := testkit.Seed(t, 0)
	for i := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			m := &tickModel{t: t, srv: looptest.Start(t, &loop.Server{NumLoops: 4, Accept: silent})}
			m.run(rand.New(rand.NewPCG(first+i, 2)))
		})
	}
}

type tickModel struct {
	t          *testing.T
	srv        *looptest.Server
	set, fired atomic.Int64
	early      atomic.Int64
	late       atomic.Int64
}

func (m *tickModel) run(r *rand.Rand) {
	var setters sync.WaitGroup
	for i, l := range m.srv.Loops() {
		seed := r.Uint64()
		setters.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 100 {
				time.Sleep(randomDelay(r) / 4)
				own := rand.New(rand.NewPCG(r.Uint64(), 0))
				if err := l.Post(func() { m.add(l, own, 3) }); err != nil {
					m.t.Error(err)
				}
			}
		})
	}
	setters.Wait()
	time.Sleep(time.Hour) // longer than any delay
	synctest.Wait()
	if m.set.Load() != m.fired.Load() || m.early.Load() != 0 || m.late.Load() != 0 {
		m.t.Errorf("%d set, %d fired, %d early, %d late", m.set.Load(), m.fired.Load(), m.early.Load(), m.late.Load())
	}
}

// add sets a timer that sets depth generations more. It runs on l.
func (m *tickModel) add(l *loop.Loop, r *rand.Rand, depth int) {
	d := randomDelay(r)
	due := l.Now().Add(d)
	m.set.Add(1)
	l.AfterFunc(d, func() {
		m.fired.Add(1)
		switch late := l.Now().Sub(due); {
		case late < 0:
			m.early.Add(1)
		case late >= time.Millisecond:
			m.late.Add(1)
		}
		if depth > 0 {
			m.add(l, r, depth-1)
		}
	})
}

// randomDelay is between nothing and some minutes, mostly short.
func randomDelay(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(1 << r.IntN(37))) }

// The same in real time and with real parallelism: no wake-up is lost, however close a deadline is
// to the one before.
func TestNoWakeupIsLost(t *testing.T) {
	srv := &loop.Server{NumLoops: 4, Accept: silent}
	start(t, srv)
	var wg sync.WaitGroup
	first := testkit.Seed(t, 0)
	for i, l := range srv.Loops() {
		for j := range 50 {
			wg.Add(1)
			random := rand.New(rand.NewPCG(first, uint64(100*i+j)))
			var again func(n int)
			again = func(n int) {
				if n == 0 {
					wg.Done()
					return
				}
				d := time.Duration(random.Int64N(int64(3 * time.Millisecond)))
				due := time.Now().Add(d)
				l.AfterFunc(d, func() {
					if time.Now().Before(due) {
						t.Error("early")
					}
					again(n - 1)
				})
			}
			_ = l.Post(func() { again(100) })
		}
	}
	wg.Wait()
}
