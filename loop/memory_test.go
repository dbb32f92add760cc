package loop

import (
	"net"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/loopwheel/loopwheel/codec"
)

// A connection that has nothing to send and nothing that is less than a frame holds no buffer,
// whatever went before.
func TestIdleConnectionHoldsNoBuffer(t *testing.T) {
	r := newRig(t, &Server{Codec: codec.Lines{Max: 1 << 20}, MaxOutbound: 20 << 20, HoldBackAt: 10 << 20}, HandlerFunc(echoAll))
	c, s, sock := r.connect()
	check := func(when string) {
		t.Helper()
		if b := c.out.box; b != nil {
			t.Errorf("%s: a box with %d bytes of output is held", when, b.Len())
		}
		if n := c.in.decoder.Buffered(); n != 0 {
			t.Errorf("%s: input holds %d bytes", when, n)
		}
	}
	check("at first")
	s.Readable([]byte("hello\n"))
	check("after a message")
	s.Readable([]byte("hel"))
	s.Readable([]byte("lo\n"))
	check("after a message in two pieces")
	sock.room = 10
	s.Readable(append(make([]byte, 200_000), '\n'))
	s.Readable(append(make([]byte, 100), '\n'))
	if c.pending() != 200_001+101-10 {
		t.Errorf("%d bytes wait", c.pending())
	}
	sock.room = 100_000
	s.Writable()
	sock.room = -1
	s.Writable()
	check("after a long flush")
	_ = c.Send([]byte("not\na line")) // an error of the codec
	check("after an error of AppendFrame")
}

// An idle connection is little more than this: one more word makes it a size class larger, which is
// 16 bytes of each.
func TestConnIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Conn{}); size > 208 && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("a Conn takes %d bytes", size)
	}
}

// Connections from one listener share their local address, and those of others do not get it.
func TestEnds(t *testing.T) {
	var l Loop
	tcp := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	a := l.addrsOf(nil, tcp("127.0.0.1:80"), tcp("127.0.0.1:1"))
	b := l.addrsOf(nil, tcp("127.0.0.1:80"), tcp("127.0.0.1:2"))
	if a.shared != b.shared || a.remote().String() != "127.0.0.1:1" || b.remote().String() != "127.0.0.1:2" {
		t.Errorf("%v and %v", a, b)
	}
	for _, local := range []net.Addr{tcp("127.0.0.1:81"), tcp("127.0.0.2:80"), tcp("[::ffff:127.0.0.1]:80"), tcp("[fe80::1%eth0]:80"), nil} {
		c := l.addrsOf(nil, local, tcp("127.0.0.1:3"))
		if got := c.local(); got != local {
			t.Errorf("local address %v, want %v", got, local)
		}
	}
	here, there := &net.UnixAddr{Name: "/a", Net: "unix"}, &net.UnixAddr{Net: "unix"}
	if u := l.addrsOf(nil, here, there); u.local() != net.Addr(here) || u.remote() != net.Addr(there) || a.local().String() != "127.0.0.1:80" {
		t.Errorf("%v", u)
	}
}
