package timing

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// marathon checks a wheel against arrays, which is fast: a hundred million operations in a minute.
// It knows how many timers each tick has, not their order, which the other models check.
type marathon struct {
	t       *testing.T
	r       *rand.Rand
	w       *Wheel
	timers  []runner
	due     [1 << marathonBits]int32 // of ticks to come, how many timers
	late    int                      // timers that were due when they were added, or that a budget left
	never   int                      // timers at the end of time
	now     uint64                   // in ticks
	ops     int
	panics  int
	drained int
	moved   int // by the function of a Drain
}

type runner struct {
	handle Timer
	tick   uint64 // math.MaxUint64: never
	live   bool
	isLate bool
	call   func()
}

const (
	marathonBits  = 15
	marathonMask  = 1<<marathonBits - 1
	marathonTick  = time.Millisecond
	marathonCrowd = 5000
)

func newMarathon(t *testing.T, seed uint64) *marathon {
	m := &marathon{t: t, r: rand.New(rand.NewPCG(seed, 9)), w: New(Config{}), timers: make([]runner, marathonCrowd)}
	for i := range m.timers {
		x := &m.timers[i]
		x.call = func() { m.called(x) }
	}
	return m
}

// count adds x to what is due, or takes it out.
func (m *marathon) count(x *runner, n int) {
	switch {
	case x.tick == math.MaxUint64:
		m.never += n
	case x.isLate:
		m.late += n
	default:
		m.due[x.tick&marathonMask] += int32(n)
	}
}

// when returns a deadline, and makes x one for it.
func (m *marathon) when(x *runner) time.Duration {
	now := time.Duration(m.now) * marathonTick
	x.isLate = false
	switch v := m.r.Uint32(); {
	case v%256 == 0:
		x.tick = math.MaxUint64
		return math.MaxInt64 - time.Duration(v>>8)
	case v%64 == 1:
		x.tick, x.isLate = m.now, true
		return []time.Duration{math.MinInt64, 0, -1, now}[v>>8%4]
	default:
		d := uint64(v>>8)&(1<<(v>>4%(marathonBits)))&marathonMask | uint64(m.r.Uint32())&(1<<(v>>4%marathonBits)-1)
		x.tick = m.now + 1 + d&(marathonMask>>1)
		return time.Duration(x.tick)*marathonTick - time.Duration(v%1000)
	}
}

// change does one operation on a timer.
func (m *marathon) change() {
	m.ops++
	x := &m.timers[m.r.IntN(len(m.timers))]
	switch {
	case !x.live:
		x.handle = m.w.At(m.when(x), x.call)
		x.live = true
		m.count(x, 1)
	case m.r.Uint32()%3 == 0:
		m.count(x, -1)
		x.live = false
		if !m.w.Stop(x.handle) || m.w.Stop(x.handle) {
			m.t.Fatal("Stop of a pending timer: want true, then false")
		}
	default:
		m.count(x, -1)
		if !m.w.Reset(x.handle, m.when(x)) {
			m.t.Fatal("Reset of a pending timer: false")
		}
		m.count(x, 1)
	}
}

func (m *marathon) called(x *runner) {
	if !x.live || x.tick > m.now {
		m.t.Fatalf("called at tick %d: live %v, due at %d", m.now, x.live, x.tick)
	}
	m.count(x, -1)
	x.live = false
	m.ops++
	switch v := m.r.Uint32(); {
	case v%4 == 0:
		m.change() // from a callback
	case v%1024 == 1:
		m.panics++
		panic(m)
	case v%(1<<18) == 2:
		m.drain()
	}
}

func (m *marathon) drain() {
	n, want := 0, m.w.Len()
	last := time.Duration(math.MinInt64)
	moved := map[time.Duration]bool{}
	m.w.Drain(func(when time.Duration) {
		if !moved[when] { // those keep their turn
			if when < last {
				m.t.Fatalf("Drain visited %v after %v", when, last)
			}
			last = when
		}
		n++
		if x := &m.timers[m.r.IntN(len(m.timers))]; n%8 == 0 && m.w.Pending(x.handle) {
			m.count(x, -1)
			to := m.when(x)
			moved[to] = true
			if !m.w.Reset(x.handle, to) {
				m.t.Fatal("Reset of a timer that Drain has not visited: false")
			}
			m.count(x, 1)
			m.moved++
		}
	})
	if n != want || m.w.Len() != 0 {
		m.t.Fatalf("Drain visited %d of %d", n, want)
	}
	for i := range m.timers {
		if x := &m.timers[i]; x.live {
			m.count(x, -1)
			x.live = false
			want--
		}
	}
	if want != 0 {
		m.t.Fatalf("%d more timers were pending than should", want)
	}
	m.drained++
}

// advance lets some ticks pass; then no timer of these is left, unless a budget was.
func (m *marathon) advance() {
	before := m.now
	m.now += uint64(m.r.Uint32() % (1 << (m.r.Uint32() % 7)))
	for {
		budget := 0
		if m.r.Uint32()%4 == 0 {
			budget = 1 + int(m.r.Uint32()%64)
		}
		ended := func() (ended bool) {
			defer func() {
				if v := recover(); v != nil && v != m {
					panic(v)
				}
			}()
			m.w.Advance(time.Duration(m.now)*marathonTick, budget)
			return budget == 0
		}()
		if ended {
			break
		}
	}
	for tick := before + 1; tick <= m.now; tick++ {
		if n := m.due[tick&marathonMask]; n != 0 {
			m.t.Fatalf("%d timers of tick %d are left at %d", n, tick, m.now)
		}
	}
}

func TestMarathon(t *testing.T) {
	ops := 2_000_000
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		ops = 100_000_000
	} else {
		t.Log("2 million operations; set LOOPWHEEL_SLOW=1 for 100 million")
	}
	m := newMarathon(t, seed.Pick(t, 1))
	for i := 0; m.ops < ops; i++ {
		for range m.r.Uint32() % 64 {
			m.change()
		}
		m.advance()
		if live := m.w.Len(); i%50_000 == 0 {
			m.w.validate(t)
			n := 0
			for i := range m.timers {
				if m.timers[i].live {
					n++
				}
			}
			if n != live {
				t.Fatalf("%d pending, want %d", live, n)
			}
		}
	}
	t.Logf("%d operations, %d panics, %d drains that moved %d, %+v", m.ops, m.panics, m.drained, m.moved, m.w.Stats())
	if m.panics == 0 || m.drained == 0 || m.moved == 0 {
		t.Error("too little happened")
	}
}
