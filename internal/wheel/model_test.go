package wheel

import (
	"cmp"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A choice source: a seeded generator for the model test, the fuzzer's bytes for the fuzz target.
type chooser interface{ uint64n(n uint64) uint64 }

type randomChooser struct{ *rand.Rand }

func (r randomChooser) uint64n(n uint64) uint64 { return r.Uint64N(n) }

// model is the obvious implementation: a slice sorted by tick and, within one, by order of
// addition.
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

	cascaded uint64 // by wheels before this one
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

// delay returns a delay in ticks and a bit, of any magnitude up to 2^50 ticks, sometimes not
// positive.
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

// when returns a deadline: some way off, or now and then an extreme one.
func (m *model) when() time.Duration {
	if m.c.uint64n(64) == 0 {
		extreme := []time.Duration{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, m.now, math.MaxInt64 - 1, math.MaxInt64}
		return extreme[m.c.uint64n(uint64(len(extreme)))]
	}
	d := m.delay()
	if d > 0 && m.now > math.MaxInt64-d {
		return math.MaxInt64
	}
	return m.now + d
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
	if when > m.now {
		m.file(x, m.tickOf(when))
		return
	}
	if m.inside {
		x.round = m.round
	}
	m.file(x, m.reached())
}

func (m *model) file(x *modelTimer, tick uint64) {
	m.seq++
	x.seq, x.tick = m.seq, tick
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
	when := m.when()
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
		if x.tick > m.reached() {
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

// take calls a timer that is due, or puts it back.
func (m *model) take(d Due) bool {
	if m.c.uint64n(8) > 0 {
		d.Func()
		return true
	}
	x, when := m.next(), m.when()
	if x == nil || x.handle != d.Timer || x.when != d.When {
		m.t.Fatalf("at %d: got %+v, want %+v", m.now, d, x)
	}
	m.ran++
	m.remove(x)
	m.insert(x, when)
	m.w.PutBack(d, when)
	return true
}

// runs checks that x is the next.
func (m *model) runs(x *modelTimer) {
	want := m.next()
	if want != x {
		m.t.Fatalf("at %d: ran %+v, want %+v", m.now, x, want)
	}
	m.ran++
	m.remove(x)
	if x.period == 0 || m.now == math.MaxInt64 {
		m.gone = append(m.gone, x.handle)
		return
	}
	x.when = m.nextPeriod(x)
	x.round = 0
	m.file(x, m.tickOf(x.when))
}

// nextPeriod returns the first deadline of x whose tick the wheel has not come to.
func (m *model) nextPeriod(x *modelTimer) time.Duration {
	when, period := big.NewInt(int64(x.when)), big.NewInt(int64(x.period))
	reached := big.NewInt(int64(m.now / m.tick * m.tick))
	n := big.NewInt(1)
	if reached.Cmp(when) > 0 {
		n.Sub(reached, when)
		n.Add(n.Div(n, period), big.NewInt(1))
	}
	next := when.Add(when, n.Mul(n, period))
	if !next.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(next.Int64())
}

// tickOf returns the tick of a deadline that has not passed.
func (m *model) tickOf(when time.Duration) uint64 { return uint64((when-1)/m.tick) + 1 }

// reached returns the tick that the wheel has come to.
func (m *model) reached() uint64 {
	if m.now == math.MaxInt64 {
		return m.tickOf(m.now)
	}
	return uint64(m.now / m.tick)
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
		// The wheel fills and empties again and again.
		if x := m.pick(); x != nil && (m.seq/3000%2 == 1 || m.c.uint64n(16) == 0) {
			m.stop(x)
		}
	case 5, 6:
		if x := m.pick(); x != nil {
			m.reset(x, m.when())
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

func (m *model) reset(x *modelTimer, when time.Duration) {
	m.remove(x)
	m.insert(x, when)
	if !m.w.Reset(x.handle, when) {
		m.t.Fatalf("Reset of pending %+v: false", x)
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
	if when, ok := m.w.Next(); ok && m.c.uint64n(4) == 0 && when < endIsNear {
		now = when
	}
	if now < m.now || m.c.uint64n(4096) == 0 {
		now = math.MaxInt64
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
	fired := m.w.Take(told, budget, m.take)
	left := m.next()
	m.inside = false
	m.checkAdvance(before, fired, budget, left, told)
}

func (m *model) checkAdvance(before Stats, fired, budget int, left *modelTimer, told time.Duration) {
	if fired != m.ran || m.w.Now() != m.now {
		m.t.Fatalf("Advance returned %d, ran %d; Now is %d, want %d", fired, m.ran, m.w.Now(), m.now)
	}
	after := m.w.Stats()
	touched := int(after.Fired - before.Fired + after.Cascaded - before.Cascaded)
	if budget > 0 && touched > budget {
		m.t.Fatalf("Advance touched %d timers, budget %d", touched, budget)
	}
	if left != nil && (budget == 0 || touched == 0) { // what closes gaps is in the budget, and not in touched
		m.t.Fatalf("Advance to %d left %+v, touched %d of %d", m.now, left, touched, budget)
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
	if ok && when > max(m.w.time(m.timers[0].tick), 0) {
		m.t.Fatalf("Next %d is after %+v", when, m.timers[0])
	}
}

// drain drains the wheel. The function may stop timers, move some, which keep their turn, and add
// some, which stay.
func (m *model) drain() {
	rest := slices.SortedFunc(slices.Values(m.timers), func(a, b *modelTimer) int { // what is to be visited
		return cmp.Or(cmp.Compare(a.when, b.when), cmp.Compare(a.tick, b.tick), cmp.Compare(a.seq, b.seq))
	})
	changes := m.c.uint64n(2)
	m.w.Drain(func(when time.Duration) {
		gone := slices.IndexFunc(rest, func(x *modelTimer) bool { return !m.w.Pending(x.handle) })
		if gone != 0 || when != rest[0].when {
			m.t.Fatalf("Drain visited %d, timer %d; want %d", when, gone, rest[0].when)
		}
		m.remove(rest[0])
		m.gone = append(m.gone, rest[0].handle)
		rest = slices.Delete(rest, 0, 1)
		if len(rest) == 0 || len(rest) > 500 || m.c.uint64n(8) < 8-changes {
			return
		}
		i := m.c.uint64n(uint64(len(rest)))
		switch m.c.uint64n(4) {
		case 0:
			m.stop(rest[i])
			rest = slices.Delete(rest, int(i), int(i)+1)
		case 1, 2:
			m.reset(rest[i], m.when())
		case 3:
			m.add(0)
		}
	})
	if len(rest) > 0 || m.w.Len() != len(m.timers) {
		m.t.Fatalf("Drain left %d, and the wheel has %d, want %d", len(rest), m.w.Len(), len(m.timers))
	}
}

// endIsNear is when a model begins anew, now and then: a tick of 1 ms gets to the end of time.
const endIsNear = 1 << 61

func (m *model) restart() {
	m.cascaded += m.w.Stats().Cascaded
	m.now, m.timers, m.gone = 0, nil, nil
	m.w = New(Config{Tick: m.tick})
}

func (m *model) step() {
	if m.now > endIsNear && !m.inside && m.c.uint64n(50) == 0 {
		m.restart()
	}
	if m.c.uint64n(4) == 0 {
		m.advance()
	} else {
		m.change()
	}
	m.checkNext()
}
