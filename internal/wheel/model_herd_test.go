package wheel

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// herd is the model test with many timers on few ticks, most of them next to the borders of slots:
// slots are emptied and filled again at once, callbacks panic, drain the wheel and use up budgets.
type herd struct {
	*model
	ticks [6]uint64
	fired uint64
}

// when returns a deadline at one of the herd's ticks, of which those that have passed are replaced.
func (h *herd) when() time.Duration {
	i := h.c.uint64n(uint64(len(h.ticks)))
	now := uint64(h.now / h.tick)
	if h.ticks[i] < now || h.ticks[i] == now && h.c.uint64n(4) == 0 {
		unit := uint64(1) << (slotBits * h.c.uint64n(4))
		h.ticks[i] = (now/unit+1+h.c.uint64n(130))*unit + h.c.uint64n(5) - 1
	}
	return time.Duration(h.ticks[i])*h.tick - time.Duration(h.c.uint64n(uint64(h.tick)))
}

func (h *herd) list(x *modelTimer) int {
	return int(h.w.node(x.handle.index).slot & slotIndex)
}

// empty stops all timers in the slot of x, but for some, and adds others there.
func (h *herd) empty(x *modelTimer) {
	list, when, few := h.list(x), x.when, h.c.uint64n(2)*h.c.uint64n(80)
	for i := len(h.timers) - 1; i >= 0; i-- {
		if y := h.timers[i]; h.list(y) == list && (few == 0 || h.c.uint64n(few) != 0) {
			h.stop(y)
		}
	}
	for range h.c.uint64n(3) {
		h.add(0, when)
	}
}

func (h *herd) add(period, when time.Duration) {
	x := &modelTimer{period: period}
	h.insert(x, when)
	f := func() {
		h.runs(x)
		for range h.c.uint64n(3) {
			h.change()
		}
		if h.c.uint64n(64) == 0 {
			panic(h)
		}
	}
	if period > 0 {
		x.handle = h.w.Every(when, period, f)
	} else {
		x.handle = h.w.At(when, f)
	}
}

func (h *herd) change() {
	x := h.pick()
	if x == nil {
		h.add(0, h.when())
		return
	}
	switch h.c.uint64n(10) {
	case 0, 1, 2:
		if when := h.when(); len(h.timers) < 600 {
			for range 1 + h.c.uint64n(2)*h.c.uint64n(90) {
				h.add(0, when)
			}
		}
	case 3:
		if len(h.timers) < 600 {
			h.add(1+time.Duration(h.c.uint64n(1<<(6*h.c.uint64n(3))))*h.tick, h.when())
		}
	case 4:
		h.empty(x)
	case 5:
		h.stop(x)
	case 6:
		h.reset(x, h.when())
	case 7:
		h.reset(x, x.when+time.Duration(h.c.uint64n(3))*h.tick-h.tick)
	case 8:
		h.reset(x, h.timers[h.c.uint64n(uint64(len(h.timers)))].when)
	case 9:
		if h.c.uint64n(40) == 0 {
			h.drain()
		}
	}
}

func (h *herd) step() {
	if h.now > endIsNear {
		h.fired += h.w.Stats().Fired
		h.ticks = [6]uint64{}
		h.restart()
	}
	if h.c.uint64n(3) > 0 {
		h.change()
	} else {
		func() {
			defer func() {
				h.inside = false
				if v := recover(); v != nil && v != h {
					panic(v)
				}
			}()
			h.advance()
		}()
	}
	h.checkNext()
}

func TestHerdAgainstModel(t *testing.T) {
	first, n := testkit.Seed(t, 0), uint64(8)
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		n = 500
	}
	for i := range n {
		seed := first + i
		tick := []time.Duration{time.Millisecond, 1, 7, time.Second}[seed%4]
		h := &herd{model: newModel(t, randomChooser{rand.New(rand.NewPCG(2, seed))}, tick)}
		h.crowd = true // short steps
		for i := range 4000 {
			h.step()
			if i%50 == 0 {
				h.w.validate(t)
			}
		}
		if st := h.w.Stats(); st.Fired+h.fired < 1000 || st.Cascaded+h.cascaded < 2000 {
			t.Errorf("%+v: too few to mean much", st)
		}
		h.drain()
		h.w.validate(t)
	}
}
