package loop_test

import (
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// linkLocal returns an address of this machine that means something on one of its links only.
func linkLocal(t *testing.T) net.IPAddr {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Skip(err)
	}
	for _, link := range links {
		addrs, _ := link.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() && link.Flags&net.FlagUp != 0 {
				return net.IPAddr{IP: n.IP, Zone: link.Name}
			}
		}
	}
	t.Skip("no link has an IPv6 link-local address (fe80::); as root: ip link add v0 type veth peer name v1, and ip link set each of them up")
	return net.IPAddr{}
}

// A peer on the same link, as sensors in a house are, has an address with a zone. It gets answers,
// and is a session of its own.
func TestUDPLinkLocalPeers(t *testing.T) {
	me := linkLocal(t)
	peers := make(chan string, 10)
	srv := &loop.Server{Addr: "udp://[::]:0", NumLoops: 2, Accept: func(c *loop.Conn) loop.Handler {
		peers <- c.RemoteAddr().String()
		return loop.HandlerFunc(echo)
	}}
	start(t, srv)
	port := srv.LocalAddr().(*net.UDPAddr).Port
	for range 3 {
		c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: me.IP, Port: port, Zone: me.Zone})
		if err != nil {
			t.Skipf("%v: %v", me, err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		for _, msg := range []string{"hello", "again"} {
			if _, err := c.Write([]byte(msg)); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 100)
			if n, err := c.Read(buf); err != nil || string(buf[:n]) != msg {
				t.Fatalf("%v: got %q, %v; want %q back", me, buf[:n], err, msg)
			}
		}
		if got := receive(t, peers, "Accept"); got != c.LocalAddr().String() {
			t.Errorf("RemoteAddr %s, want %s", got, c.LocalAddr())
		}
	}
}
