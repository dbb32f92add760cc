package handler_test

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// What a burst of calls has taken is given back, and those that are under way meanwhile end when
// they must.
func TestCallsGiveBackMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const many, few = 50_000, 128 << 10
		k := newCaller(t, handler.CallConfig{Max: many + 100})
		var long [3]uint64
		nobody := func(string, error) {}
		burst := func() {
			for range many {
				_, _ = k.calls.Begin(time.Second, nobody)
				_, _ = k.pipe.CallFunc(time.Second, sent, nobody)
			}
		}
		k.do(func() { long[0] = k.begin(t, time.Hour) })
		k.do(burst)
		k.do(func() { long[1] = k.begin(t, time.Hour) })
		testkit.Pass(5 * time.Second)
		k.do(func() {
			if a, b := handler.CallBytes(k.calls), handler.PipelineBytes(k.pipe); a < 8*few || b < 8*few {
				t.Fatalf("a burst takes %d and %d bytes: too few to tell anything", a, b)
			}
			for range many {
				k.pipe.Answer("late")
			}
		})
		k.do(func() { long[2] = k.begin(t, time.Hour) })
		testkit.Pass(2 * time.Minute)
		k.do(func() {
			if a, b := handler.CallBytes(k.calls), handler.PipelineBytes(k.pipe); a > few || b > few {
				t.Errorf("%d and %d bytes are kept after a burst", a, b)
			}
			if n := k.calls.Stats().Pending; n != 3 {
				t.Errorf("%d calls are under way", n)
			}
			if !k.calls.Answer(long[1], "yes") {
				t.Error("a call was lost")
			}
		})
		answered := time.Since(k.start)
		testkit.Pass(2 * time.Hour)
		k.want(t, long[1], "yes", nil, answered)
		k.want(t, long[0], "", handler.ErrCallTimeout, time.Hour)
		k.want(t, long[2], "", handler.ErrCallTimeout, time.Hour+5*time.Second)
	})
}
