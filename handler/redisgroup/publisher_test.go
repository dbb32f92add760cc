package redisgroup

import (
	"fmt"
	"strconv"
	"testing"
)

// What an outbox keeps back has its taker come again.
func TestOutboxLeavesNothing(t *testing.T) {
	var b outbox
	b.init(1 << 20)
	for range maxBatch + 1 {
		if err := b.add(&outgoing{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{maxBatch, 1} {
		<-b.wake
		if batch, _ := b.take(); len(batch) != want {
			t.Errorf("%d were taken, want %d", len(batch), want)
		}
	}
}

// What is on its way counts, too, until it is done with.
func TestOutboxCountsWhatIsOnItsWay(t *testing.T) {
	var b outbox
	b.init(1 << 10)
	fill := func() (n int) {
		for b.add(&outgoing{data: make([]byte, 100)}) == nil {
			n++
		}
		return n
	}
	n := fill()
	batch, _ := b.take()
	if more := fill(); n == 0 || more != 0 {
		t.Errorf("%d fit, and %d more while they are on their way", n, more)
	}
	b.done()
	b.prepend(batch[1:])
	if more := fill(); more != 1 {
		t.Errorf("%d more fit when one is done, want 1", more)
	}
}

// Clients that come, go, join and leave while Redis is away leave nothing behind.
func TestOutboxIsSwept(t *testing.T) {
	var b outbox
	b.init(1 << 10)
	gone := &room{}
	gone.forgotten.Store(true)
	for i := range 100_000 {
		user := fmt.Append(nil, i)
		for _, o := range []*outgoing{{op: opPeek, room: gone}, {op: opCome, data: user}, {op: opGo, data: user}} {
			if err := b.add(o); err != nil {
				t.Fatal(err)
			}
		}
		if len(b.queue) > 2*minSweep || cap(b.queue) > 8*minSweep || len(b.changes) > minSweep {
			t.Fatalf("%d are queued, with room for %d", len(b.queue), cap(b.queue))
		}
	}
	size := 0
	for _, o := range b.queue {
		size += o.size()
	}
	b.sweep()
	if b.size > size {
		t.Errorf("it has %d bytes, and takes that for %d", size, b.size)
	}
}

// A queue that was long, and is never empty, is swept as if it had never been long.
func TestSweepAfterABurst(t *testing.T) {
	const burst, left = 10_000, 100
	b := new(outbox)
	b.init(1)
	change := func(o op, user string) *outgoing {
		return &outgoing{place: place{channel: "room"}, op: o, data: []byte(user)}
	}
	for i := range burst {
		_ = b.add(change(opCome, strconv.Itoa(i)))
	}
	for b.len() > left+maxBatch {
		b.take()
		b.done()
	}
	before := b.len()
	for i := range burst {
		_ = b.add(change([]op{opGo, opCome}[i%2], "somebody"))
	}
	if n := b.len(); n > 2*before+minSweep {
		t.Errorf("%d wait in the queue", n)
	}
}
