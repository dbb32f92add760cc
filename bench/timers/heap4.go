//go:build linux

package main

import "time"

// heap4 is the wheel's real rival: a 4-ary min-heap without pointers, written as well as we can.
// The keys lie in the heap itself, so sifting compares neighbours in one cache line and touches a
// node only to tell it where it is.
type heap4 struct {
	heap  []entry4
	nodes []node4
	calls []func()
	free  uint32 // first free node, linked by node4.pos; node 0 is not used
}

type entry4 struct {
	when time.Duration
	node uint32
}

type node4 struct {
	pos uint32
	gen uint32
}

type handle4 struct{ node, gen uint32 }

func newHeap4() *heap4 {
	return &heap4{nodes: make([]node4, 1), calls: make([]func(), 1)}
}

func (h *heap4) at(when time.Duration, f func()) handle4 {
	i := h.free
	if i != 0 {
		h.free = h.nodes[i].pos
	} else {
		i = uint32(len(h.nodes))
		h.nodes = append(h.nodes, node4{})
		h.calls = append(h.calls, nil)
	}
	h.calls[i] = f
	h.heap = append(h.heap, entry4{})
	h.up(uint32(len(h.heap)-1), entry4{when, i})
	return handle4{i, h.nodes[i].gen}
}

func (h *heap4) stop(t handle4) bool {
	n := &h.nodes[t.node]
	if n.gen != t.gen {
		return false
	}
	h.remove(n.pos)
	h.release(t.node)
	return true
}

func (h *heap4) reset(t handle4, when time.Duration) bool {
	n := &h.nodes[t.node]
	if n.gen != t.gen {
		return false
	}
	h.place(n.pos, entry4{when, t.node})
	return true
}

func (h *heap4) advance(now time.Duration) (fired int) {
	for len(h.heap) > 0 && h.heap[0].when <= now {
		i := h.heap[0].node
		h.remove(0)
		f := h.calls[i]
		h.release(i)
		f()
		fired++
	}
	return fired
}

func (h *heap4) release(i uint32) {
	h.calls[i] = nil
	n := &h.nodes[i]
	n.gen++
	n.pos = h.free
	h.free = i
}

func (h *heap4) remove(pos uint32) {
	last := len(h.heap) - 1
	e := h.heap[last]
	h.heap = h.heap[:last]
	if int(pos) < last {
		h.place(pos, e)
	}
}

// place puts e at pos, or where it belongs above or below.
func (h *heap4) place(pos uint32, e entry4) {
	if pos > 0 && e.when < h.heap[(pos-1)/4].when {
		h.up(pos, e)
	} else {
		h.down(pos, e)
	}
}

func (h *heap4) up(pos uint32, e entry4) {
	for pos > 0 {
		parent := (pos - 1) / 4
		p := h.heap[parent]
		if p.when <= e.when {
			break
		}
		h.heap[pos] = p
		h.nodes[p.node].pos = pos
		pos = parent
	}
	h.heap[pos] = e
	h.nodes[e.node].pos = pos
}

func (h *heap4) down(pos uint32, e entry4) {
	heap := h.heap
	for {
		first := int(pos)*4 + 1
		if first >= len(heap) {
			break
		}
		least, when := first, heap[first].when
		for c := first + 1; c < min(first+4, len(heap)); c++ {
			if heap[c].when < when {
				least, when = c, heap[c].when
			}
		}
		if e.when <= when {
			break
		}
		heap[pos] = heap[least]
		h.nodes[heap[pos].node].pos = pos
		pos = uint32(least)
	}
	heap[pos] = e
	h.nodes[e.node].pos = pos
}
