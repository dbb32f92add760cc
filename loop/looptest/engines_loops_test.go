package looptest

import (
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

func testLoops(t *testing.T, c engineConfig) {
	t.Run("capacity", func(t *testing.T) {
		if n := startEngine(t, c, 1).Capacity(1); n <= 0 {
			t.Errorf("capacity %d, want a positive number", n)
		}
	})
	t.Run("wake", func(t *testing.T) { testWake(t, c) })
	t.Run("wake on the loop", func(t *testing.T) { testWakeInline(t, c) })
	t.Run("again", func(t *testing.T) { testAgain(t, c) })
	t.Run("probe", func(t *testing.T) { testProbe(t, c) })
	t.Run("ticks", func(t *testing.T) { testTicks(t, c) })
	t.Run("tick of a busy loop", func(t *testing.T) { testBusyTick(t, c) })
	t.Run("ticks move", func(t *testing.T) { testTicksMove(t, c) })
	t.Run("stop with a tick", func(t *testing.T) {
		for _, d := range []time.Duration{engine.Never, time.Hour, 0} {
			r := startEngine(t, c, 2)
			r.do(0, func() { r.loops[0].TickAt(d) })
		}
	})
	t.Run("stop at once", func(t *testing.T) { // as after a Start that has failed with another loop
		r := newEngineRig(t, c, 1)
		testkit.WantErr(t, "Stop", r.Stop(), nil)
		testkit.Want(t, "calls of the host", r.loops[0].wakes.Load(), 0)
	})
	t.Run("enrol answers once", func(t *testing.T) { testEnrollOnce(t, c) })
	t.Run("dial refused", func(t *testing.T) { testDialRefused(t, c) })
	t.Run("stop closes sockets", func(t *testing.T) { testStopCloses(t, c) })
}

// A wake reaches the loop from any goroutine, whether it sleeps, is busy, or is just about to
// sleep.
func testWake(t *testing.T, c engineConfig) {
	r := startEngine(t, c, 2)
	var wg sync.WaitGroup
	var ran [2]int
	const goroutines, each = 4, 1000
	for range goroutines {
		wg.Go(func() {
			for i := range each {
				r.do(i%2, func() { ran[i%2]++ })
			}
		})
	}
	wg.Wait()
	for i := range ran {
		r.do(i, func() {
			if got, want := ran[i], goroutines*each/2; got != want {
				t.Errorf("loop %d: %d functions ran, want %d", i, got, want)
			}
		})
	}
}

// A loop that wakes itself, or asks for another turn, does not run it inline.
func testWakeInline(t *testing.T, c engineConfig) {
	r := startEngine(t, c, 1)
	for name, ask := range map[string]func(){
		"Wake":  func() { r.loops[0].Wake() },
		"Again": func() { r.loops[0].Again() },
	} {
		within, done := false, make(chan struct{})
		r.do(0, func() {
			within = true
			r.post(0, func() {
				if within {
					t.Errorf("%s calls OnWake inline", name)
				}
				close(done)
			})
			ask()
			within = false
		})
		testkit.Receive(t, "the other turn", done)
	}
}

// A loop that asks for turns without end enrolls connections and looks at its sockets between them.
func testAgain(t *testing.T, c engineConfig) {
	r := startEngine(t, c, 1)
	defer r.busy()()
	ear, peer := r.open(c.networks[0])
	send(t, peer, "x")
	ear.hears(t, "x")
}

// A loop that sleeps, and one that asks for turns without end, is probed on the loop that is meant.
func testProbe(t *testing.T, c engineConfig) {
	r := startEngine(t, c, 2)
	r.loops[1].Probe()
	if got := testkit.Receive(t, "a probe of a loop that sleeps", r.probes); got != 1 {
		t.Errorf("loop %d was probed, want 1", got)
	}
	defer r.busy()()
	r.loops[0].Probe()
	if got := testkit.Receive(t, "a probe of a loop that asks for turns", r.probes); got != 0 {
		t.Errorf("loop %d was probed, want 0", got)
	}
}

// ticked waits for a tick, which must not come before when.
func (r *engineRig) ticked(when time.Duration) (at time.Duration) {
	r.t.Helper()
	if at = testkit.Receive(r.t, "the tick", r.ticks); at < when {
		r.t.Errorf("it came %v early", when-at)
	}
	return at
}

// The time that TickAt was given last is when the tick comes. It may come once too early.
func testTicks(t *testing.T, c engineConfig) {
	const ms = time.Millisecond
	r := startEngine(t, c, 1)
	for _, test := range []struct {
		name  string
		after []time.Duration
	}{
		{"the only one", []time.Duration{5 * ms}},
		{"passed", []time.Duration{-ms}},
		{"earlier", []time.Duration{engine.Never - 1, time.Hour, 5 * ms}},
		{"later", []time.Duration{ms, time.Hour, 20 * ms}},
		{"after never", []time.Duration{engine.Never, 5 * ms}},
		{"cancelled", []time.Duration{5 * ms, engine.Never}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.t = t
			now := r.now()
			times := slices.Clone(test.after)
			for i, d := range times {
				if d < engine.Never-1 {
					times[i] = now + d
				}
			}
			first, last := slices.Min(times), times[len(times)-1]
			r.do(0, func() {
				for _, when := range times {
					r.loops[0].TickAt(when)
				}
			})
			if last != engine.Never {
				for at := r.ticked(first); at < last; {
					at = r.ticked(first)
				}
			}
			r.silent()
		})
	}
}

// silent checks that no tick comes, as far as that shows before one for a later time, but for one
// that comes too early.
func (r *engineRig) silent() {
	r.t.Helper()
	when := r.now() + time.Millisecond
	r.do(0, func() { r.loops[0].TickAt(when) })
	early := 0
	for testkit.Receive(r.t, "the tick", r.ticks) < when {
		early++
	}
	if n := early + len(r.ticks); n > 1 {
		r.t.Errorf("%d ticks more, want at most 1", n)
	}
}

// A tick that is due while its loop is busy comes afterwards.
func testBusyTick(t *testing.T, c engineConfig) {
	r := startEngine(t, c, 1)
	for range 5 {
		when := r.now() + time.Millisecond
		r.do(0, func() {
			r.loops[0].TickAt(when)
			for r.now() < when+2*time.Millisecond {
				runtime.Gosched()
			}
			if n := len(r.ticks); n != 0 {
				t.Errorf("%d ticks within a turn, want 0", n)
			}
		})
		r.ticked(when)
	}
	r.silent()
}

// Times that move on and back are all ticked for.
func testTicksMove(t *testing.T, c engineConfig) {
	r := startEngine(t, c, 2)
	for range 500 {
		when := r.now() + 50*time.Microsecond
		r.do(0, func() {
			for _, when := range []time.Duration{when + time.Hour, when + time.Minute, when} {
				r.loops[0].TickAt(when)
			}
		})
		r.ticked(when)
		r.do(0, func() { r.loops[0].TickAt(r.now() + time.Hour) })
	}
}

// Enroll calls either open or lost, once, also if the loop ends meanwhile or has ended. It does not
// call lost inline.
func testEnrollOnce(t *testing.T, c engineConfig) {
	const conns = 8
	for range 10 {
		r := startEngine(t, c, 1)
		answers, lost := make(chan error, 4*conns), 0
		for i := range 2 * conns {
			if i == conns {
				r.loops[0].Lost()
			}
			nc, _ := c.connect(t, r, c.networks[0])
			returned := make(chan struct{})
			r.loops[0].Enroll(nc, func(engine.Socket) engine.Sink {
				answers <- nil
				return newEar()
			}, func(err error) {
				testkit.Receive(t, "Enroll returns before it calls lost", returned)
				answers <- err
			})
			close(returned)
		}
		for range 2 * conns {
			err := testkit.Receive(t, "an answer", answers)
			if err != nil {
				lost++
			}
			if err != nil && !errors.Is(err, engine.ErrEnded) {
				t.Errorf("lost with %v, want %v", err, engine.ErrEnded)
			}
		}
		if lost < conns {
			t.Errorf("%d were lost, want at least the %d that came after the end", lost, conns)
		}
		if n := len(answers); n != 0 {
			t.Errorf("%d answers too many", n)
		}
	}
}

// Stop closes the sockets that are open. Their sinks hear at most of the end of the loop.
func testStopCloses(t *testing.T, c engineConfig) {
	r := newEngineRig(t, c, 1)
	_, peer := r.open(c.networks[0])
	if err := r.Stop(); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if n, err := peer.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("the peer reads %d bytes and %v, want the end", n, err)
	}
}

// An address that nothing listens on refuses.
func testDialRefused(t *testing.T, c engineConfig) {
	nc, err := startEngine(t, c, 1).Dial(t.Context(), net.Dialer{}, "tcp", testkit.FreeAddr(t))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, %v; want %v", nc, err, syscall.ECONNREFUSED)
	}
}
