package loop

import (
	"net"
	"testing"
)

// Addresses are shared only if they look the same to who asks.
func TestSameTCP(t *testing.T) {
	addr := func(ip net.IP, port int, zone string) *net.TCPAddr {
		return &net.TCPAddr{IP: ip, Port: port, Zone: zone}
	}
	a := addr(net.ParseIP("fe80::1"), 80, "eth0")
	v4 := net.IPv4(127, 0, 0, 1)
	var none *net.TCPAddr
	for _, c := range []struct {
		a, b net.Addr
		want bool
	}{
		{a, addr(net.ParseIP("fe80::1"), 80, "eth0"), true},
		{a, addr(net.ParseIP("fe80::1"), 81, "eth0"), false},
		{a, addr(net.ParseIP("fe80::1"), 80, "eth1"), false},
		{a, addr(net.ParseIP("fe80::2"), 80, "eth0"), false},
		{addr(v4.To4(), 80, ""), addr(v4.To4(), 80, ""), true},
		{addr(v4.To4(), 80, ""), addr(v4.To16(), 80, ""), false},
		{a, none, false}, {none, a, false}, {a, nil, false}, {nil, a, false},
		{a, &net.UnixAddr{Name: "x"}, false}, {&net.UnixAddr{Name: "x"}, a, false},
	} {
		if got := sameTCP(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %v", c.a, c.b, got)
		}
	}
	l := &Loop{}
	if e := l.addrsOf(nil, a, none); e.remote() != net.Addr(none) || e.local() != net.Addr(a) {
		t.Errorf("%v and %v", e.local(), e.remote())
	}
}

// A brokenWrap panics when it is looked through.
type brokenWrap struct{ Handler }

func (brokenWrap) Unwrap() any { panic("on purpose") }

// If a handler's Unwrap panics, Info reports the handler's own type.
func TestInfoOfABrokenHandler(t *testing.T) {
	r := newRig(t, &Server{}, brokenWrap{HandlerFunc(echoAll)})
	c, _, _ := r.connect()
	if got := c.Info().Handler; got != "loop.brokenWrap" {
		t.Errorf("the handler is %q", got)
	}
}
