package redisgroup

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// What follows a command for several rooms, in one of these, does not go out with it; all else goes
// out as early as that allows, and in its order.
func TestWaves(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	for range 2000 {
		var batch []*outgoing
		for i := range rng.IntN(20) {
			o := &outgoing{op: op(rng.IntN(int(opGo) + 1)), seq: uint64(i), place: place{bucket: rng.IntN(2)}}
			o.channel = fmt.Sprint(o.bucket, rng.IntN(4))
			if o.op == opPlain {
				o.channel = "plain" + o.channel
			}
			batch = append(batch, o)
		}
		all := (&link{}).segments(batch)
		var order []*segment
		for i, wave := range waves(all) {
			if i > 0 && !overtakes(order, wave[0]) {
				t.Errorf("wave %d could have gone out with the one before", i)
			}
			order = order[:0]
			for _, s := range wave {
				if overtakes(order, s) {
					t.Errorf("wave %d has a command that may overtake another", i)
				}
				order = append(order, s)
				if s != all[0] {
					t.Fatal("the order is another")
				}
				all = all[1:]
			}
		}
		if len(all) > 0 {
			t.Errorf("%d commands are left out", len(all))
		}
	}
}

// overtakes reports whether one of wave is for several rooms, of which one is s's.
func overtakes(wave []*segment, s *segment) bool {
	for _, before := range wave {
		rooms := make(map[string]bool)
		for _, o := range before.items {
			rooms[o.channel] = true
		}
		for _, o := range s.items {
			if len(rooms) > 1 && rooms[o.channel] {
				return true
			}
		}
	}
	return false
}

// A batch of what most are made of goes out at once.
func TestOneWave(t *testing.T) {
	room := func(o op, name string) *outgoing { return &outgoing{op: o, place: place{channel: name}} }
	for _, batch := range [][]*outgoing{
		nil,
		{room(opOrdered, "a"), room(opOrdered, "b"), room(opOrdered, "a"), room(opPlain, "c"), room(opPlain, "c")},
		{room(opPeek, "a"), room(opOrdered, "a"), room(opCome, "a"), room(opOrdered, "a"), room(opOrdered, "b")},
		{room(opOrdered, "a"), room(opOrdered, "b"), room(opCome, "c"), room(opOrdered, "d"), room(opGo, "c")},
	} {
		if all := waves((&link{}).segments(batch)); len(all) != 1 {
			t.Errorf("%d waves of %d", len(all), len(batch))
		}
	}
}
