//go:build linux

package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A wrong implementation is easily fast, so the contenders must agree: all steppers run the same
// random operations, and the same timers must be due at each step.
func TestSteppersAgree(t *testing.T) {
	const n, steps = 500, 3000
	var want [][]int
	for _, k := range kinds {
		c, ok := k.make(n).(stepper)
		if !ok {
			continue
		}
		r := rand.New(rand.NewPCG(1, 2))
		var got [][]int
		var fired []int
		pending := make([]bool, n)
		for step := range steps {
			i := r.IntN(n)
			d := time.Duration(1+r.IntN(200)) * time.Millisecond
			switch op := r.IntN(4); {
			case !pending[i]:
				c.add(i, d, func() { fired = append(fired, i); pending[i] = false })
				pending[i] = true
			case op == 0:
				c.stop(i)
				pending[i] = false
			default:
				c.reset(i, d)
			}
			fired = nil
			c.advance(time.Duration(step) * time.Millisecond)
			slices.Sort(fired)
			got = append(got, fired)
		}
		if want == nil {
			want = got
		}
		for step := range got {
			if !slices.Equal(got[step], want[step]) {
				t.Fatalf("%s: %v due at step %d, want %v", k.name, got[step], step, want[step])
			}
		}
	}
	if len(slices.Concat(want...)) < steps/10 {
		t.Errorf("only %d ran", len(slices.Concat(want...)))
	}
}
