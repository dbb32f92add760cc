package onredis

import (
	"strings"
	"testing"
)

// The tags of the parts are spread evenly, in slots as Redis computes them.
func TestTags(t *testing.T) {
	if got := crc16("123456789"); got != 0x31C3 {
		t.Errorf("crc16 is %#x", got)
	}
	for _, prefix := range []string{"", "some:"} {
		for _, n := range []int{1, 3, 16, 64, 1024} {
			for i := range n {
				tag := Tag(prefix, i, n)
				if slot := int(crc16(tag)) % number; slot*n/number != i || !strings.HasPrefix(tag, prefix) {
					t.Errorf("part %d of %d is %q, in slot %d", i, n, tag, slot)
				}
			}
		}
	}
}
