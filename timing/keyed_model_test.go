package timing

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/internal/wheel"
)

// keyedFace is what a Keyed and a KeyedWheel have in common, so that one model serves both.
type keyedFace interface {
	set(key string, value int, d time.Duration)
	move(key string, d time.Duration) bool
	Remove(key string) (int, bool)
	Get(key string) (int, bool)
	Len() int
	Drain(f func(string, int)) int
	pass(d time.Duration)
	now() time.Duration
}

type sharedFace struct{ *Keyed[string, int] }

func (f sharedFace) set(key string, value int, d time.Duration) { must(0, f.Set(key, value, d)) }
func (f sharedFace) move(key string, d time.Duration) bool      { return f.Move(key, d) == nil }
func (f sharedFace) now() time.Duration                         { return f.s.now() }
func (f sharedFace) pass(d time.Duration)                       { testkit.Pass(d) }

type ownedFace struct {
	*wheel.Keyed[string, int]
	owner *wheel.Wheel
	clock *time.Duration
}

func (f ownedFace) set(key string, value int, d time.Duration) { f.Set(key, value, *f.clock+d) }
func (f ownedFace) move(key string, d time.Duration) bool      { return f.Move(key, *f.clock+d) }
func (f ownedFace) now() time.Duration                         { return *f.clock }

// pass drives the owner's wheel as a loop does: to what is due next, and from there on.
func (f ownedFace) pass(d time.Duration) {
	end := *f.clock + d
	for {
		when, ok := f.owner.Next()
		if !ok || when > end {
			break
		}
		*f.clock = max(when, *f.clock)
		f.owner.Advance(*f.clock, 0)
	}
	*f.clock = end
	f.owner.Advance(end, 0)
}

// keyedModel is the obvious implementation: a map.
type keyedModel struct {
	t       *testing.T
	r       *rand.Rand
	k       keyedFace
	entries map[string]modelEntry
	gone    []Entry[string, int] // what expire got
	mu      sync.Mutex           // of gone
	values  int
}

type modelEntry struct {
	value int
	when  time.Duration
}

func newKeyedModel(seed uint64) *keyedModel {
	return &keyedModel{r: rand.New(rand.NewPCG(seed, 8)), entries: map[string]modelEntry{}}
}

func (m *keyedModel) expire(gone []Entry[string, int]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = append(m.gone, gone...)
}

func (m *keyedModel) step() {
	key := strconv.Itoa(m.r.IntN(2000))
	e, ok := m.entries[key]
	d := time.Duration(m.r.IntN(1<<m.r.IntN(16)))*at(1)/8 + 1
	switch m.r.IntN(8) {
	case 0, 1, 2:
		m.values++
		m.k.set(key, m.values, d)
		m.entries[key] = modelEntry{m.values, m.k.now() + d}
	case 3:
		if got := m.k.move(key, d); got != ok {
			m.t.Fatalf("Move(%s): %v, want %v", key, got, ok)
		}
		if ok {
			m.entries[key] = modelEntry{e.value, m.k.now() + d}
		}
	case 4:
		if v, got := m.k.Remove(key); got != ok || v != e.value {
			m.t.Fatalf("Remove(%s): %d, %v, want %v, %v", key, v, got, e, ok)
		}
		delete(m.entries, key)
	case 5:
		if v, got := m.k.Get(key); got != ok || v != e.value {
			m.t.Fatalf("Get(%s): %d, %v, want %v, %v", key, v, got, e, ok)
		}
	case 6:
		m.settle(time.Duration(m.r.IntN(1<<m.r.IntN(8))) * at(1) / 8)
	case 7:
		if m.r.IntN(200) == 0 {
			m.drain()
		}
	}
	if m.k.Len() != len(m.entries) {
		m.t.Fatalf("Len %d, want %d", m.k.Len(), len(m.entries))
	}
}

// byDeadline returns the entries up to a time by their deadlines.
func (m *keyedModel) byDeadline(now time.Duration, tick time.Duration) (all []string) {
	due := func(key string) time.Duration { return (m.entries[key].when + tick - 1) / tick }
	for _, key := range slices.Sorted(maps.Keys(m.entries)) {
		if due(key)*tick <= now {
			all = append(all, key)
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(due(a), due(b)) })
	return all
}

// settle lets time pass; what was due, and nothing else, must have expired.
func (m *keyedModel) settle(d time.Duration) {
	m.k.pass(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	want := m.byDeadline(m.k.now(), at(1))
	if len(m.gone) != len(want) {
		m.t.Fatalf("%d expired, want %d", len(m.gone), len(want))
	}
	last := time.Duration(0)
	for _, e := range m.gone {
		was, ok := m.entries[e.Key]
		tick := (was.when + at(1) - 1) / at(1)
		if !ok || was.value != e.Value || !slices.Contains(want, e.Key) || tick < last {
			m.t.Fatalf("%v expired, which was %v, %v, after tick %d", e, was, ok, last)
		}
		last = tick
		delete(m.entries, e.Key)
	}
	m.gone = m.gone[:0]
}

func (m *keyedModel) drain() {
	last := time.Duration(0)
	n := m.k.Drain(func(key string, value int) {
		e, ok := m.entries[key]
		if !ok || e.value != value || e.when < last {
			m.t.Fatalf("Drain visited %s, %d, which is %v, %v", key, value, e, ok)
		}
		last = e.when
		delete(m.entries, key)
	})
	if len(m.entries) != 0 {
		m.t.Fatalf("Drain visited %d, and %d are left", n, len(m.entries))
	}
}

func TestKeyedAgainstModel(t *testing.T) {
	first := testkit.Seed(t, 0)
	for i := range uint64(3) {
		m := newKeyedModel(first + i)
		synctest.Test(t, func(t *testing.T) {
			k := NewKeyed(KeyedConfig{}, m.expire)
			m.t, m.k = t, sharedFace{k}
			for range 20_000 {
				m.step()
			}
			if left := k.Stop(); len(left) != len(m.entries) {
				t.Errorf("Stop returned %d, want %d", len(left), len(m.entries))
			}
		})
	}
}

func TestKeyedWheelAgainstModel(t *testing.T) {
	first := testkit.Seed(t, 0)
	for i := range uint64(3) {
		m := newKeyedModel(first + i)
		now := at(12345)
		w := wheel.New(wheel.Config{})
		w.Advance(now, 0)
		m.t, m.k = t, ownedFace{wheel.NewKeyed(w, nil, m.expire), w, &now}
		for range 20_000 {
			m.step()
		}
		m.drain()
		if w.Len() != 0 {
			t.Errorf("an empty KeyedWheel has %d timers in its owner's", w.Len())
		}
	}
}
