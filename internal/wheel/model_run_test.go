package wheel

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// 100,000 random operations against the model, delays up to 2^50 ticks, steps up to 2^31. With
// LOOPWHEEL_SLOW=1 it is five million.
func TestWheelAgainstModel(t *testing.T) {
	steps := 100_000
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		steps = 5_000_000
	}
	test := func(name string, tick time.Duration, crowd bool) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newModel(t, randomChooser{rand.New(rand.NewPCG(testkit.Seed(t, 1), uint64(tick)))}, tick)
			m.crowd = crowd
			peak := 0
			for i := range steps {
				m.step()
				if i%2000 == 0 {
					m.w.validate(t)
				}
				peak = max(peak, len(m.timers))
				if i%20_000 == 19_999 {
					m.drain()
				}
			}
			if crowd && peak < 1000 || m.cascaded+m.w.Stats().Cascaded < 10_000 {
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

// The seed corpus is in testdata/fuzz/FuzzWheel. Fuzz with -fuzzminimizetime 1x: to shrink every
// input that reaches new code takes longer than to find the next one.
func FuzzWheel(f *testing.F) {
	f.Fuzz(func(t *testing.T, tick uint32, data []byte) {
		if tick == 0 || len(data) > 1<<14 {
			t.Skip("no tick, or so long that it is slow: the fuzzer tries another input")
		}
		c := &byteChooser{data}
		m := newModel(t, c, time.Duration(tick))
		for i := 0; len(c.data) > 0 && i < 1<<16; i++ {
			m.step()
			if i%8 == 0 {
				m.w.validate(t)
			}
		}
		m.drain()
		m.w.validate(t)
	})
}
