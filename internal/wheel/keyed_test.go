package wheel

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// validate checks that the keys are those of the wheel's timers. A key that is not equal to itself
// is in no map.
func (c *Keyed[K, V]) validate(t testing.TB) {
	t.Helper()
	c.wheel.validate(t)
	c.owner.validate(t)
	strange := 0
	for at := range c.wheel.slots {
		for i := c.wheel.slots[at].first; i != 0; i = c.wheel.node(i).next {
			if key := c.entries[i].Key; key != key {
				strange++
			} else if c.nodes[key] != i {
				t.Fatalf("node %d has the key %v, which is at node %d", i, key, c.nodes[key])
			}
		}
	}
	if len(c.nodes)+strange != c.wheel.Len() {
		t.Fatalf("%d keys for %d timers", len(c.nodes), c.wheel.Len())
	}
}

// A Keyed stays whole, whatever is done to it. What it does is tested in package timing.
func TestKeyedIsWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t, 0), 8))
	w, now := New(Config{}), time.Duration(0)
	k := NewKeyed(w, nil, func(expired []Entry[int, int]) {
		if r.IntN(50) == 0 {
			panic("in expire")
		}
	})
	for i := range 20_000 {
		key, d := r.IntN(2000), time.Duration(r.Int64N(int64(time.Minute)))
		switch r.IntN(10) {
		case 0, 1, 2, 3:
			k.Set(key, i, now+d)
		case 4, 5:
			k.Move(key, now+d)
		case 6:
			k.Remove(key)
		case 7:
			if r.IntN(500) == 0 {
				k.Drain(func(key, value int) { k.Set(key, value, now+d) })
			}
		default:
			now += d / 100
			func() {
				defer func() { _ = recover() }()
				w.Advance(now, r.IntN(4))
			}()
		}
		if i%100 == 0 {
			k.validate(t)
		}
	}
	if k.Drain(nil); w.Len() != 0 {
		t.Errorf("an empty Keyed has %d timers in its owner", w.Len())
	}
}
