package redisgroup

import (
	"fmt"
	"strconv"
	"testing"
)

// A laneOfOne is a lane whose queues all have the same worker, which does not run.
func laneOfOne(limit int) (*lane, *worker) {
	w := newWorker(nil, nil)
	h := &Hub{cfg: Config{MaxQueue: limit}}
	w.lane = newLane(h, 0)
	w.lane.route = func(int) *worker { return w }
	return w.lane, w
}

// takeAll takes a batch, and is done with it.
func (w *worker) takeAll() []*outgoing {
	batch := w.lane.take(w)
	w.lane.landed(w)
	w.lane.release(w)
	return batch
}

// What a lane keeps back has its taker come again.
func TestLaneLeavesNothing(t *testing.T) {
	l, w := laneOfOne(1 << 20)
	for range maxBatch + 1 {
		if err := l.add(&outgoing{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{maxBatch, 1} {
		<-w.wake
		if batch := w.takeAll(); len(batch) != want {
			t.Errorf("%d were taken, want %d", len(batch), want)
		}
	}
	if w.size != 0 || l.len() != 0 {
		t.Errorf("%d bytes of %d are left", w.size, l.len())
	}
}

// What is on its way counts, too, until it is done with.
func TestLaneCountsWhatIsOnItsWay(t *testing.T) {
	l, w := laneOfOne(1 << 10)
	fill := func() (n int) {
		for l.add(&outgoing{data: make([]byte, 100)}) == nil {
			n++
		}
		return n
	}
	n := fill()
	batch := l.take(w)
	if more := fill(); n == 0 || more != 0 {
		t.Errorf("%d fit, and %d more while they are on their way", n, more)
	}
	l.landed(w)
	l.putBack(w, batch[1:])
	l.release(w)
	if more := fill(); more != 1 {
		t.Errorf("%d more fit when one is done, want 1", more)
	}
}

// What has to be sent again comes first, and in its order.
func TestLanePutsBack(t *testing.T) {
	l, w := laneOfOne(1 << 20)
	for i := range 4 {
		_ = l.add(&outgoing{seq: uint64(i)})
	}
	batch := l.take(w)
	_ = l.add(&outgoing{seq: 4})
	l.landed(w)
	l.putBack(w, batch[2:])
	l.release(w)
	for i, o := range w.takeAll() {
		if want := uint64(i) + 2; o.seq != want {
			t.Errorf("%d is number %d, want %d", i, o.seq, want)
		}
	}
}

// Clients that come, go, join and leave while Redis is away leave nothing behind.
func TestLaneIsSwept(t *testing.T) {
	l, w := laneOfOne(1 << 10)
	gone, left := &room{}, &joining{}
	gone.forgotten.Store(true)
	left.gone.Store(true)
	q := &l.queues[0]
	for i := range 20_000 {
		user := fmt.Append(nil, i)
		for _, o := range []*outgoing{
			{op: opPeek, room: gone}, {op: opHistory, join: left}, {op: opUser, here: true, data: user}, {op: opUser, data: user},
		} {
			if err := l.add(o); err != nil {
				t.Fatal(err)
			}
		}
		if len(q.items) > 2*minSweep || cap(q.items) > 8*minSweep || len(l.changes) > minSweep {
			t.Fatalf("%d are queued, with room for %d", len(q.items), cap(q.items))
		}
	}
	size := 0
	for _, o := range q.items {
		size += o.size()
	}
	if w.size != size {
		t.Errorf("%d wait with %d bytes, and it takes them for %d", len(q.items), size, w.size)
	}
}

// A queue that was long, and is never empty, is swept as if it had never been long.
func TestSweepAfterABurst(t *testing.T) {
	const burst, left = 10_000, 100
	l, w := laneOfOne(1)
	change := func(here bool, user string) *outgoing {
		return &outgoing{place: place{channel: "room"}, op: opUser, here: here, data: []byte(user)}
	}
	for i := range burst {
		_ = l.add(change(true, strconv.Itoa(i)))
	}
	for l.len() > left+maxBatch {
		w.takeAll()
	}
	before := l.len()
	for i := range burst {
		_ = l.add(change(i%2 == 1, "somebody"))
	}
	if n := l.len(); n > 2*before+minSweep {
		t.Errorf("%d wait in the queue", n)
	}
}
