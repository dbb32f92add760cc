package timing

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A choice source: a seeded generator for the model test, the fuzzer's bytes for the fuzz target.
type chooser interface{ uint64n(n uint64) uint64 }

type randomChooser struct{ *rand.Rand }

func (r randomChooser) uint64n(n uint64) uint64 { return r.Uint64N(n) }

// model is the obvious implementation: a slice sorted by tick and, within one, by order of addition.
type model struct {
	t      testing.TB
	c      chooser
	w      *Wheel
	tick   time.Duration
	timers []*modelTimer // sorted
	gone   []Timer       // stale handles
	seq    uint64
	now    time.Duration
	round  int // number of Advances so far
	inside bool
	ran    int
	crowd  bool // many timers in few slots, so that these are long
}

type modelTimer struct {
	tick   uint64
	seq    uint64
	when   time.Duration
	period time.Duration
	round  int // added overdue in this Advance, so not to run before the next; else 0
	handle Timer
}

func newModel(t testing.TB, c chooser, tick time.Duration) *model {
	return &model{t: t, c: c, tick: tick, w: New(Config{Tick: tick})}
}

// delay returns a delay in ticks and a bit, of any magnitude up to 2^50 ticks, sometimes not positive.
func (m *model) delay() time.Duration {
	bits := min(m.c.uint64n(51), 61-uint64(levelBits(m.tick)))
	if m.crowd {
		bits = 9 + min(bits, 5)
	}
	if m.c.uint64n(2) == 0 && !m.crowd {
		bits = min(bits, m.c.uint64n(13)) // near ones too, that share ticks and slots
	}
	d := time.Duration(m.c.uint64n(1<<bits)) * m.tick
	if m.c.uint64n(8) == 0 {
		return -d
	}
	return d + time.Duration(m.c.uint64n(uint64(m.tick)))
}

func levelBits(tick time.Duration) (n int) {
	for ; tick > 0; tick >>= 1 {
		n++
	}
	return n
}

// insert files x in the model by the documented rules.
func (m *model) insert(x *modelTimer, when time.Duration) {
	x.when, x.round = when, 0
	m.seq++
	x.seq = m.seq
	if when <= m.now {
		x.tick = uint64(m.now / m.tick)
		if m.inside {
			x.round = m.round
		}
	} else {
		x.tick = uint64((when-1)/m.tick) + 1
	}
	i, _ := slices.BinarySearchFunc(m.timers, x, func(a, b *modelTimer) int {
		return cmp.Or(cmp.Compare(a.tick, b.tick), cmp.Compare(a.seq, b.seq))
	})
	m.timers = slices.Insert(m.timers, i, x)
}

func (m *model) remove(x *modelTimer) {
	i := slices.Index(m.timers, x)
	m.timers = slices.Delete(m.timers, i, i+1)
}

func (m *model) pick() *modelTimer {
	if len(m.timers) == 0 {
		return nil
	}
	// The front of the slice is the batch that is running: its neighbours are picked often.
	n := len(m.timers)
	if m.c.uint64n(2) == 0 {
		n = min(n, 4)
	}
	return m.timers[m.c.uint64n(uint64(n))]
}

func (m *model) add(period time.Duration) {
	x := &modelTimer{period: period}
	when := m.now + m.delay()
	m.insert(x, when)
	if period > 0 {
		x.handle = m.w.Every(when, period, func() { m.called(x) })
	} else {
		x.handle = m.w.At(when, func() { m.called(x) })
	}
}

// next returns the timer that has to run now, nil if none.
func (m *model) next() *modelTimer {
	for _, x := range m.timers {
		if x.tick > uint64(m.now/m.tick) {
			return nil
		}
		if !m.inside || x.round != m.round {
			return x
		}
	}
	return nil
}

// called is every timer's callback.
func (m *model) called(x *modelTimer) {
	m.runs(x)
	for range m.c.uint64n(3) {
		m.change()
	}
}

// runs checks that it is the turn of x.
func (m *model) runs(x *modelTimer) {
	want := m.next()
	if want != x {
		m.t.Fatalf("at %d: ran %+v, want %+v", m.now, x, want)
	}
	m.ran++
	m.remove(x)
	if x.period > 0 {
		m.insert(x, x.when+((m.now-x.when)/x.period+1)*x.period)
	} else {
		m.gone = append(m.gone, x.handle)
	}
}

// more returns how many timers to add besides one.
func (m *model) more() uint64 {
	if m.crowd && len(m.timers) < 2000 {
		return m.c.uint64n(5)
	}
	return 0
}

// change does one thing that a callback may do as well.
func (m *model) change() {
	switch m.c.uint64n(8) {
	case 0, 1, 2:
		for range 1 + m.more() {
			m.add(0)
		}
	case 3:
		if m.c.uint64n(8) == 0 && len(m.timers) < 2000 {
			m.add(1 + max(m.delay(), 0))
		}
	case 4:
		// The wheel fills and empties by turns.
		if x := m.pick(); x != nil && (m.seq/3000%2 == 1 || m.c.uint64n(16) == 0) {
			m.stop(x)
		}
	case 5, 6:
		if x := m.pick(); x != nil {
			when := m.now + m.delay()
			m.remove(x)
			m.insert(x, when)
			if !m.w.Reset(x.handle, when) {
				m.t.Fatalf("Reset of pending %+v: false", x)
			}
		}
	case 7:
		if len(m.gone) > 0 {
			h := m.gone[m.c.uint64n(uint64(len(m.gone)))]
			if m.w.Stop(h) || m.w.Reset(h, m.now) || m.w.Pending(h) {
				m.t.Fatalf("stale handle %+v is pending", h)
			}
		}
	}
}

func (m *model) stop(x *modelTimer) {
	if when, ok := m.w.When(x.handle); !ok || when != x.when {
		m.t.Fatalf("When of %+v: %d, %v", x, when, ok)
	}
	if !m.w.Stop(x.handle) {
		m.t.Fatalf("Stop of pending %+v: false", x)
	}
	m.remove(x)
	m.gone = append(m.gone, x.handle)
}

func (m *model) advance() {
	bits := min(m.c.uint64n(32), m.c.uint64n(32), 61-uint64(levelBits(m.tick)))
	if m.c.uint64n(2) == 0 || m.crowd {
		bits = min(bits, 4)
	}
	now := m.now + time.Duration(m.c.uint64n(1<<bits))*m.tick + time.Duration(m.c.uint64n(uint64(m.tick)))
	if when, ok := m.w.Next(); ok && m.c.uint64n(4) == 0 {
		now = when
	}
	told := now
	if m.c.uint64n(16) == 0 {
		told -= time.Duration(m.c.uint64n(1 << 40)) // the clock steps back
	}
	budget := 0
	if m.c.uint64n(2) == 0 {
		budget = 1 + int(m.c.uint64n(20))
	}
	m.now = max(m.now, told)
	m.round++
	m.ran = 0
	before := m.w.Stats()
	m.inside = true
	fired := m.w.Advance(told, budget)
	left := m.next()
	m.inside = false
	m.checkAdvance(before, fired, budget, left, told)
}

func (m *model) checkAdvance(before Stats, fired, budget int, left *modelTimer, told time.Duration) {
	if fired != m.ran {
		m.t.Fatalf("Advance returned %d, ran %d", fired, m.ran)
	}
	after := m.w.Stats()
	touched := int(after.Fired - before.Fired + after.Cascaded - before.Cascaded)
	if budget > 0 && touched > budget {
		m.t.Fatalf("Advance touched %d timers, budget %d", touched, budget)
	}
	if left != nil && (budget == 0 || touched < budget) {
		m.t.Fatalf("Advance to %d left %+v", m.now, left)
	}
	if left != nil {
		if when, ok := m.w.Next(); !ok || when > told {
			m.t.Fatalf("work left at %d, but Next is %d, %v", told, when, ok)
		}
	}
}

func (m *model) checkNext() {
	when, ok := m.w.Next()
	if m.w.Len() != len(m.timers) || ok != (len(m.timers) > 0) {
		m.t.Fatalf("Len %d, Next %v; want %d", m.w.Len(), ok, len(m.timers))
	}
	if ok && when > m.w.time(m.timers[0].tick) {
		m.t.Fatalf("Next %d is after %+v", when, m.timers[0])
	}
}

func (m *model) drain() {
	var want, got []time.Duration
	for _, x := range m.timers {
		want = append(want, x.when)
		m.gone = append(m.gone, x.handle)
	}
	slices.Sort(want)
	m.w.Drain(func(when time.Duration) { got = append(got, when) })
	if !slices.Equal(got, want) {
		m.t.Fatalf("Drain visited %d, want %d", got, want)
	}
	m.timers = nil
}

func (m *model) step() {
	if m.c.uint64n(4) == 0 {
		m.advance()
	} else {
		m.change()
	}
	m.checkNext()
}

// 100,000 random operations against the model, delays up to 2^50 ticks, steps up to 2^31.
func TestWheelAgainstModel(t *testing.T) {
	test := func(name string, tick time.Duration, crowd bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, randomChooser{rand.New(rand.NewPCG(1, uint64(tick)))}, tick)
			m.crowd = crowd
			peak := 0
			for i := range 100_000 {
				m.step()
				if i%2000 == 0 {
					m.w.validate(t)
				}
				peak = max(peak, len(m.timers))
				if m.now > 1<<61 { // a tick of 1 ms gets to the end of time
					m.now, m.timers, m.gone = 0, nil, nil
					m.w = New(Config{Tick: tick})
				}
				if i%20_000 == 19_999 {
					m.drain()
				}
			}
			if crowd && peak < 1000 || m.w.Stats().Cascaded < 10_000 {
				t.Errorf("at most %d timers pending, %+v: too few to mean much", peak, m.w.Stats())
			}
			m.drain()
			m.w.validate(t)
		})
	}
	for _, tick := range []time.Duration{1, 7, 50 * time.Microsecond, time.Millisecond} {
		test(tick.String(), tick, false)
	}
	test("crowd", time.Millisecond, true)
}

// byteChooser reads choices from a fuzzer's input, and is out of them at its end.
type byteChooser struct{ data []byte }

func (b *byteChooser) uint64n(n uint64) uint64 {
	var v uint64
	for m := n - 1; m > 0 && len(b.data) > 0; m >>= 8 {
		v = v<<8 | uint64(b.data[0])
		b.data = b.data[1:]
	}
	return v % n
}

// The seed corpus is in testdata/fuzz/FuzzWheel. Fuzz with -fuzzminimizetime 1x: to shrink every input that reaches
// new code takes longer than to find the next one.
func FuzzWheel(f *testing.F) {
	f.Fuzz(func(t *testing.T, tick uint32, data []byte) {
		if tick == 0 || len(data) > 1<<14 {
			t.Skip("no tick, or so long that it is slow: the fuzzer tries another input")
		}
		c := &byteChooser{data}
		m := newModel(t, c, time.Duration(tick))
		for i := 0; len(c.data) > 0 && m.now < 1<<61; i++ {
			m.step()
			if i%8 == 0 {
				m.w.validate(t)
			}
		}
		m.drain()
		m.w.validate(t)
	})
}
