package timing

import "testing"

// A wheel has no node beyond those that its indices and sets are made for, though the last one below
// them is missing: so chunks come to an end behind it.
func TestNodesEnd(t *testing.T) {
	for _, used := range []uint32{maxNodes, maxNodes - chunkMask} {
		s := slab{used: used}
		s.nodes.room = used
		grows := used < maxNodes
		if grows {
			s.fillTop()
			if n := s.alloc(); n >= maxNodes {
				t.Errorf("node %d", n)
			}
			s.used, s.free = maxNodes, 0
			s.nodes.room = maxNodes
		}
		mustPanic(t, "timing: more than two billion timers in one Wheel", s.fillTop)
		if s.free != 0 || s.used != maxNodes {
			t.Errorf("%d nodes are free behind the last, %d used", s.free, s.used)
		}
	}
}
