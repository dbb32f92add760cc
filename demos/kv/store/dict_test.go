package store

import (
	"strconv"
	"strings"
	"testing"
)

// A small dict is shown at once, unless something in it is long.
func TestStep(t *testing.T) {
	size := func(v string) int { return len(v) }
	for _, c := range []struct {
		n      int
		longer string // a key, and a value
		whole  bool
	}{
		{small, "", true}, {small + 1, "", false},
		{small - 1, strings.Repeat("x", short), true}, {small - 1, strings.Repeat("x", short+1), false},
	} {
		var d dict[string]
		for i := range c.n {
			d.set([]byte(strconv.Itoa(i)), "v")
		}
		for _, pair := range [][2]string{{"k", c.longer}, {c.longer, "v"}} {
			d := d.clone()
			if c.longer != "" {
				d.set([]byte(pair[0]), pair[1])
			}
			from, to, next := d.step(5, 10, size)
			if whole := from == 0 && to == d.len() && next == 0; whole != c.whole {
				t.Errorf("%d elements, %d bytes: from %d to %d, then %d", d.len(), len(c.longer), from, to, next)
			}
		}
	}
}
