package redisgroup

import (
	"context"
	"fmt"
	"testing"
)

// A stoppedLane is a lane that does not run by itself.
func stoppedLane(limit int) *lane {
	h := &Hub{cfg: Config{MaxQueue: limit}, ctx: context.Background()}
	l := newLanes(h)[0]
	l.running = true
	return l
}

func (l *lane) size() int64 { return l.hub.load.Load() }

// takeAll takes a batch, and is done with it.
func (l *lane) takeAll() []*outgoing {
	batch := l.take()
	l.landed(batch, nil)
	return batch
}

// Outgoings that a lane has kept back come with the next batch, and nothing is left.
func TestLaneLeavesNothing(t *testing.T) {
	l := stoppedLane(1 << 20)
	for range maxBatch + 1 {
		if err := l.add(&outgoing{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{maxBatch, 1, 0} {
		if batch := l.takeAll(); len(batch) != want {
			t.Errorf("%d were taken, want %d", len(batch), want)
		}
	}
	if l.size() != 0 || l.len() != 0 || l.running {
		t.Errorf("%d bytes of %d are left", l.size(), l.len())
	}
}

// What is on its way counts, too, until it is done with.
func TestLaneCountsWhatIsOnItsWay(t *testing.T) {
	l := stoppedLane(1 << 10)
	fill := func() (n int) {
		for l.add(&outgoing{bounded: true, data: make([]byte, 100)}) == nil {
			n++
		}
		return n
	}
	n := fill()
	batch := l.take()
	if more := fill(); n == 0 || more != 0 {
		t.Errorf("%d fit, and %d more while they are on their way", n, more)
	}
	l.landed(batch, batch[1:])
	if more := fill(); more != 1 {
		t.Errorf("%d more fit when one is done, want 1", more)
	}
}

// What has to be sent again comes first, and in its order.
func TestLanePutsBack(t *testing.T) {
	l := stoppedLane(1 << 20)
	for i := range 4 {
		_ = l.add(&outgoing{seq: uint64(i)})
	}
	batch := l.take()
	_ = l.add(&outgoing{seq: 4})
	l.landed(batch, batch[2:])
	for i, o := range l.takeAll() {
		if want := uint64(i) + 2; o.seq != want {
			t.Errorf("%d is number %d, want %d", i, o.seq, want)
		}
	}
}

// Clients that come, go, join, claim and leave while Redis is away leave nothing behind.
func TestLaneIsSwept(t *testing.T) {
	l := stoppedLane(1 << 10)
	gone, left := &room{}, &joining{}
	gone.forgotten.Store(true)
	left.gone.Store(true)
	ended, end := context.WithCancel(t.Context())
	end()
	claim := &question{op: "claim", ctx: ended}
	for i := range 20_000 {
		user := fmt.Append(nil, i)
		for _, o := range []*outgoing{
			{op: opPeek, room: gone}, {op: opAsk, ask: left}, {op: opUser, bounded: true, data: user},
			{op: opAsk, ask: claim},
		} {
			if err := l.add(o); err != nil && !o.bounded {
				t.Fatal(err)
			}
		}
		if len(l.items) > 2*minSweep || cap(l.items) > 8*minSweep {
			t.Fatalf("%d are queued, with room for %d", len(l.items), cap(l.items))
		}
	}
	size := int64(0)
	for _, o := range l.items {
		size += o.size()
	}
	if l.size() != size {
		t.Errorf("%d wait with %d bytes, and it takes them for %d", len(l.items), size, l.size())
	}
}

// A queue that was long, and is never empty, is swept as if it had never been long.
func TestSweepAfterABurst(t *testing.T) {
	const burst, left = 10_000, 100
	l := stoppedLane(1 << 30)
	for range burst {
		_ = l.add(&outgoing{})
	}
	for l.len() > left+maxBatch {
		l.takeAll()
	}
	before := l.len()
	gone := &room{}
	gone.forgotten.Store(true)
	for range burst {
		_ = l.add(&outgoing{op: opPeek, room: gone})
	}
	if n := l.len(); n > 2*before+minSweep {
		t.Errorf("%d wait in the queue", n)
	}
}
