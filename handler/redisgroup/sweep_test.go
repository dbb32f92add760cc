package redisgroup

import (
	"strconv"
	"testing"
)

// A queue that was long, and is never empty, is compacted as if it had never been long.
func TestSweepAfterABurst(t *testing.T) {
	const burst, left = 10_000, 100
	b := new(outbox)
	b.init(1)
	come := func(i int) *outgoing {
		return &outgoing{place: place{channel: "room"}, op: opCome, data: []byte(strconv.Itoa(i))}
	}
	for i := range burst {
		_ = b.add(come(i))
	}
	for b.len() > left+maxBatch {
		b.take()
		b.done()
	}
	before := b.len()
	for range burst {
		_ = b.add(&outgoing{place: place{channel: "room"}, op: opGo, data: []byte("somebody")})
	}
	if n := b.len(); n > 2*before+minSweep {
		t.Errorf("%d wait in the queue", n)
	}

	stale := false
	w := newWorklist(func(int) bool { return stale })
	for i := range burst {
		w.add(i)
	}
	w.take(len(w.todo) - left)
	stale = true
	for i := range burst {
		w.add(i)
	}
	if n := len(w.todo); n > 2*left+minSweep {
		t.Errorf("%d wait in the worklist", n)
	}
}
