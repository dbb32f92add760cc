package limits

import (
	"net"
	"testing"
	"time"
)

func tcp(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7} }

func TestPerIP(t *testing.T) {
	g := NewLimiter(2, 64, 0)
	a, mapped, b, unix := tcp("10.0.0.1"), tcp("::ffff:10.0.0.1"), tcp("10.0.0.2"), &net.UnixAddr{}
	if !g.Acquire(a) || !g.Acquire(mapped) || g.Acquire(a) || g.Acquire(mapped) {
		t.Error("one address does not have two places, in either form")
	}
	if !g.Acquire(b) {
		t.Error("another one has none")
	}
	for range 5 {
		if !g.Acquire(unix) {
			t.Error("what has no address is limited")
		}
	}
	g.Release(unix)
	g.Release(mapped)
	if !g.Acquire(a) || g.Acquire(a) {
		t.Error("a place that was left is not free, or two are")
	}
	for range 2 {
		g.Release(a)
	}
	g.Release(b)
	if len(g.conns) != 0 {
		t.Errorf("%d addresses are remembered, and nobody is in", len(g.conns))
	}
}

func TestNoLimit(t *testing.T) {
	g := NewLimiter(0, 64, 0)
	for range 1000 {
		if !g.Acquire(tcp("10.0.0.1")) || g.Reserve(time.Time{}) != 0 {
			t.Fatal("there is a limit")
		}
	}
}

// In any time, no more come in than the rate allows and a tenth of a second's at once; and none is
// lost to those that waited.
func TestRate(t *testing.T) {
	g := NewLimiter(0, 64, 100)
	now := time.Unix(1000, 0)
	began, n := now, 0
	for now.Sub(began) < 10*time.Second {
		now = now.Add(g.Reserve(now))
		n++
	}
	if n < 1000 || n > 1015 {
		t.Errorf("%d came in 10 seconds, at 100 in a second", n)
	}
	now = now.Add(time.Hour)
	n = 0
	for g.Reserve(now) == 0 {
		n++
	}
	if n < 10 || n > 11 {
		t.Errorf("%d came in at once after a silence", n)
	}
}

func TestLog(t *testing.T) {
	var g LogRate
	now := time.Unix(1000, 0)
	for _, want := range []struct {
		after time.Duration
		more  int
		ok    bool
	}{{0, 0, true}, {1, 0, false}, {time.Second / 2, 0, false}, {time.Second / 2, 2, true}, {time.Second, 0, true}} {
		now = now.Add(want.after)
		if more, ok := g.Pass(now); more != want.more || ok != want.ok {
			t.Errorf("after %v: %d, %v; want %d, %v", want.after, more, ok, want.more, want.ok)
		}
	}
}

// A client of IPv6 has a network for itself. All of its addresses are one client's, whatever it
// chooses; the addresses of one link are many clients'.
func TestPerNetwork(t *testing.T) {
	for _, tt := range []struct {
		bits, limit int
		ips         []string
		in          int
	}{
		{64, 2, []string{"2001:db8::1", "2001:db8::2", "2001:db8::ffff:3", "2001:db8::1"}, 2},
		{64, 2, []string{"2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:3::1"}, 3},
		{48, 2, []string{"2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:3::1"}, 2},
		{128, 1, []string{"2001:db8::1", "2001:db8::2", "2001:db8::1"}, 2},
		{64, 1, []string{"fe80::1", "fe80::2", "fe80::1"}, 2},
		{64, 1, []string{"10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1"}, 2},
	} {
		g := NewLimiter(tt.limit, tt.bits, 0)
		in := 0
		var entered []string
		for _, ip := range tt.ips {
			if g.Acquire(tcp(ip)) {
				in++
				entered = append(entered, ip)
			}
		}
		if in != tt.in {
			t.Errorf("%d of %v came in at a limit of %d and %d bits, want %d", in, tt.ips, tt.limit, tt.bits, tt.in)
		}
		for _, ip := range entered {
			g.Release(tcp(ip))
		}
		if len(g.conns) != 0 {
			t.Errorf("%d networks are remembered, and nobody is in", len(g.conns))
		}
	}
}
