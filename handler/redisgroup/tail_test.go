package redisgroup

import "testing"

// What is kept for those who join does not lead across a gap: who stands before it reads again.
func TestTailEndsAtAGap(t *testing.T) {
	cfg, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r := &room{hub: &Hub{cfg: cfg, node: "me"}, place: place{kind: orderedRoom}}
	o := &r.order
	before, behind := Position{1, 8}, Position{2, 4}
	j := new(joining)
	j.gone.Store(true)
	o.last, o.joins = Position{1, 7}, map[*joining]struct{}{j: {}}
	r.accept(Entry{Position: before, Kind: Message})
	if tail, ok := o.after(before); !ok || len(tail) != 0 {
		t.Fatalf("after %v: %v, %v", before, tail, ok)
	}
	r.resume(past{end: behind, entries: []Entry{{Position: behind, Kind: Message}}})
	if gaps := r.hub.stats.Gaps; o.last != behind || gaps != 1 {
		t.Fatalf("at %v with %d gaps, want %v with one", o.last, gaps, behind)
	}
	if tail, ok := o.after(before); ok {
		t.Errorf("after %v: %v", before, tail)
	}
	if tail, ok := o.after(behind); !ok || len(tail) != 0 {
		t.Errorf("after %v: %v, %v", behind, tail, ok)
	}
}
