package gate

import (
	"net"
	"testing"
	"time"
)

func tcp(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7} }

func TestPerIP(t *testing.T) {
	g := New(2, 0)
	a, mapped, b, unix := tcp("10.0.0.1"), tcp("::ffff:10.0.0.1"), tcp("10.0.0.2"), &net.UnixAddr{}
	if !g.Enter(a) || !g.Enter(mapped) || g.Enter(a) || g.Enter(mapped) {
		t.Error("one address does not have two places, in either form")
	}
	if !g.Enter(b) {
		t.Error("another one has none")
	}
	for range 5 {
		if !g.Enter(unix) {
			t.Error("what has no address is limited")
		}
	}
	g.Leave(unix)
	g.Leave(mapped)
	if !g.Enter(a) || g.Enter(a) {
		t.Error("a place that was left is not free, or two are")
	}
	for range 2 {
		g.Leave(a)
	}
	g.Leave(b)
	if len(g.conns) != 0 {
		t.Errorf("%d addresses are remembered, and nobody is in", len(g.conns))
	}
}

func TestNoLimit(t *testing.T) {
	g := New(0, 0)
	for range 1000 {
		if !g.Enter(tcp("10.0.0.1")) || g.Wait(time.Time{}) != 0 {
			t.Fatal("there is a limit")
		}
	}
}

// In any time, no more come in than the rate allows and a tenth of a second's at once; and none is
// lost to those that waited.
func TestRate(t *testing.T) {
	g := New(0, 100)
	now := time.Unix(1000, 0)
	began, n := now, 0
	for now.Sub(began) < 10*time.Second {
		now = now.Add(g.Wait(now))
		n++
	}
	if n < 1000 || n > 1015 {
		t.Errorf("%d came in 10 seconds, at 100 in a second", n)
	}
	now = now.Add(time.Hour)
	n = 0
	for g.Wait(now) == 0 {
		n++
	}
	if n < 10 || n > 11 {
		t.Errorf("%d came in at once after a silence", n)
	}
}

func TestLog(t *testing.T) {
	var g Log
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
