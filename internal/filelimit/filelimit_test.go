package filelimit

import (
	"strings"
	"testing"
)

func TestNeed(t *testing.T) {
	for n, skips := range map[int]bool{1: false, limit(): false, limit() + 1: true} {
		f := &fake{TB: t}
		if Need(f, n); f.skipped != skips {
			t.Errorf("of %d descriptors %d are needed: skipped %v, want %v", limit(), n, f.skipped, skips)
		}
	}
}

// A fake notices that it is skipped.
type fake struct {
	testing.TB
	skipped bool
}

func (f *fake) Skipf(format string, _ ...any) { f.skipped = strings.Contains(format, "ulimit -n") }
