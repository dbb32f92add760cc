package limits

import (
	"strings"
	"testing"
	"time"
)

// Clients of IPv4 behind a translator count one by one, as they do without it.
func TestTranslatedAddresses(t *testing.T) {
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{"64:ff9b::198.51.100.1", "64:ff9b::198.51.100.2", false},
		{"64:ff9b::198.51.100.1", "64:ff9b::198.51.100.1", true},
		{"64:ff9b::198.51.100.1", "198.51.100.1", true}, // of the same client, the other way
		{"64:ff9b:1::198.51.100.1", "64:ff9b:1::198.51.100.2", false},
		{"64:ff9b:1:c633:64:100::", "64:ff9b:1:c633:64:200::", false}, // RFC 6052, 2.2, with 48 bits
		{"64:ff9b:1::198.51.100.1", "64:ff9b:1::198.51.100.1", true},
		{"2002:c633:6401:1::1", "2002:c633:6401:2::1", true}, // 6to4: its networks are one client's
		{"2002:c633:6401:1::1", "2002:c633:6402:1::1", false},
		{"2001:db8:0:1::1", "2001:db8:0:1::2", true},
		{"2001:db8:0:1::1", "2001:db8:0:2::1", false},
	} {
		g := NewLimiter(1, 64, 0)
		if !g.Acquire(tcp(c.one)) {
			t.Fatalf("%s may not come in", c.one)
		}
		if same := !g.Acquire(tcp(c.other)); same != c.same {
			t.Errorf("%s and %s count as one: %v, want %v", c.one, c.other, same, c.same)
		}
		g.Release(tcp(c.one))
		if !g.Acquire(tcp(c.one)) {
			t.Errorf("%s has left and may not come in again", c.one)
		}
	}
}

// LogRates keep no more of a text than tells it from others.
func TestLogsKeepLittle(t *testing.T) {
	var g LogRates
	now := time.Now()
	for i := range 2 * maxTexts {
		g.Pass(strings.Repeat(string(rune('a'+i%26)), 1+i)+strings.Repeat("x", 1<<20), now)
	}
	kept := 0
	for text := range g.logs {
		kept += len(text)
	}
	if kept > maxTexts*keyLen {
		t.Errorf("%d bytes of texts are kept, want %d at most", kept, maxTexts*keyLen)
	}
	long := strings.Repeat("y", 1<<20)
	g = LogRates{}
	if _, ok := g.Pass(long+"1", now); !ok {
		t.Error("the first line does not pass")
	}
	if _, ok := g.Pass(long+"2", now); ok {
		t.Error("two texts pass that differ far behind their beginning")
	}
}
