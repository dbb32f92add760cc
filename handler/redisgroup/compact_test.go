package redisgroup

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// A roomful is who is in rooms as Redis knows it, and what it is told.
type roomful struct {
	here   map[someone]bool
	events int
}

func (f *roomful) take(o *outgoing) {
	who := someone{o.channel, string(o.data)}
	if !presence(o.op) || f.here[who] == (o.op == opCome) {
		return
	}
	f.here[who] = o.op == opCome
	f.events++
}

// Whatever happens while Redis is away: once a queue was compacted as much as it can be, it has one
// change of each user at most, the same users are there in the end as without, and what was said is
// in its order.
func TestCompacted(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	for range 300 {
		long, short := &roomful{here: make(map[someone]bool)}, &roomful{here: make(map[someone]bool)}
		here := make(map[someone]bool) // as this process knows it
		rooms := [2]*room{{}, {}}
		rooms[1].forgotten.Store(true)
		var queue []*outgoing
		for range rng.IntN(20) { // Redis knows it already
			who := someone{fmt.Sprint(rng.IntN(2)), fmt.Sprint(rng.IntN(3))}
			here[who], long.here[who], short.here[who] = true, true, true
		}
		for i := range 1 + rng.IntN(60) {
			o := &outgoing{place: place{channel: fmt.Sprint(rng.IntN(2))}, seq: uint64(i), op: opOrdered}
			switch who := (someone{o.channel, fmt.Sprint(rng.IntN(3))}); {
			case rng.IntN(8) == 0:
				o.op, o.room = opPeek, rooms[rng.IntN(2)]
			case rng.IntN(8) == 0 && here[who]:
				o.op, o.data, o.retold = opCome, []byte(who.user), true
			case rng.IntN(4) > 0:
				o.op, o.data = opGo, []byte(who.user)
				if here[who] = !here[who]; here[who] {
					o.op = opCome
				}
			}
			queue = append(queue, o)
		}
		for _, o := range queue[:rng.IntN(len(queue))] {
			if o.unclear = true; rng.IntN(2) == 0 { // Redis got it, and its answer was lost
				long.take(o)
				short.take(o)
			}
		}
		checkCompacted(t, queue, compacted(queue), long, short)
		if t.Failed() {
			return
		}
	}
}

func checkCompacted(t *testing.T, queue, left []*outgoing, long, short *roomful) {
	t.Helper()
	for _, o := range queue {
		long.take(o)
	}
	changes, last, messages := make(map[someone]int), -1, 0
	for _, o := range left {
		short.take(o)
		if int(o.seq) <= last {
			t.Errorf("%d came behind %d", o.seq, last)
		}
		last = int(o.seq)
		switch {
		case o.message():
			messages++
		case o.op == opPeek && o.room.forgotten.Load():
			t.Error("a peek of a forgotten room is left")
		case presence(o.op) && !o.unclear:
			changes[someone{o.channel, string(o.data)}]++
		}
	}
	for _, o := range queue {
		if o.message() {
			messages--
		}
	}
	for who, n := range changes {
		if n > 1 {
			t.Errorf("%d changes of %v", n, who)
		}
	}
	for who := range long.here {
		if long.here[who] != short.here[who] {
			t.Errorf("%v is there: %v, want %v", who, short.here[who], long.here[who])
		}
	}
	if messages != 0 || short.events > long.events {
		t.Errorf("%d messages too many; %d events, want at most %d", messages, short.events, long.events)
	}
}

// Clients that come, go, join and leave while Redis is away leave nothing behind.
func TestOutboxIsCompacted(t *testing.T) {
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
		if len(b.queue) > 2*minSweep || cap(b.queue) > 8*minSweep {
			t.Fatalf("%d are queued, with room for %d", len(b.queue), cap(b.queue))
		}
	}
	size := 0
	for _, o := range b.queue {
		size += o.size()
	}
	if size != b.size {
		t.Errorf("it has %d bytes, and takes that for %d", size, b.size)
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
	b.prepend(batch[1:])
	b.done()
	if more := fill(); more != 1 {
		t.Errorf("%d more fit when one is done, want 1", more)
	}
}
