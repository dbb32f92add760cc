package goroutine

import (
	"strings"
	"testing"
)

func TestOwner(t *testing.T) {
	var o Owner
	o.Check("nobody's") // which is nobody's fault
	o.Claim()
	o.Check("own")
	for range 100 {
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			o.Check("other's")
		}()
		if text, _ := (<-panicked).(string); !strings.Contains(text, "other's called on goroutine") {
			t.Fatalf("a call on another goroutine: %q", text)
		}
	}
}

// What nobody has claimed costs next to nothing.
func BenchmarkCheck(b *testing.B) {
	var o Owner
	for b.Loop() {
		o.Check("nobody's")
	}
}

func BenchmarkCheckOwn(b *testing.B) {
	var o Owner
	o.Claim()
	for b.Loop() {
		o.Check("own")
	}
}
