//go:build linux

package main

import "testing"

// A list is in order of the last append, and a peer is in one list at most.
func TestList(t *testing.T) {
	var a, b list
	a.init()
	b.init()
	peers := make([]listPeer, 3)
	for i := range peers {
		a.append(&peers[i])
	}
	a.append(&peers[0]) // heard again
	b.append(&peers[1]) // pinged
	peers[1].remove()   // closed
	peers[1].remove()
	if got := b.first(); got != nil {
		t.Errorf("the first of b is %p, want none", got)
	}
	for _, i := range []int{2, 0} {
		if got := a.first(); got != &peers[i] {
			t.Fatalf("the first of a is %p, want peer %d", got, i)
		}
		peers[i].remove()
	}
	if got := a.first(); got != nil {
		t.Errorf("the first of a is %p, want none", got)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
