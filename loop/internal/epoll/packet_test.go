//go:build linux && !386 && !s390x

package epoll

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// box is a PacketSink that answers with what it was sent.
type box struct {
	loop   int
	to     engine.Packets
	peers  chan string
	failed chan error
}

func (b *box) Received(batch []engine.Datagram) (done bool) {
	for _, d := range batch {
		b.peers <- fmt.Sprintf("%d %s %d", b.loop, d.Peer, len(d.Data))
		if b.to != nil {
			b.to.Send(d.Data, d.Peer, d.Local)
		}
	}
	if b.to != nil {
		b.to.Flush()
	}
	return true
}

func (b *box) Failed(err error) { b.failed <- err }

func newBox(loop int) *box {
	return &box{loop: loop, peers: make(chan string, 10000), failed: make(chan error, 10)}
}

// servePackets serves network on all loops.
func servePackets(t *testing.T, r *rig, network, address string) (addr net.Addr, boxes []*box) {
	t.Helper()
	all, err := r.ListenPacket(context.Background(), net.ListenConfig{}, network, address, len(r.loops))
	if err != nil {
		t.Fatal(err)
	}
	addr = all[0].LocalAddr()
	for i, nc := range all {
		b := newBox(i)
		r.do(i, func() { b.to, err = r.ServePacket(i, nc, b) })
		if err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, b)
	}
	t.Cleanup(func() {
		for i, b := range boxes {
			r.do(i, b.to.Close)
		}
	})
	return addr, boxes
}

func TestPacketsOfAllSizes(t *testing.T) {
	engines(t, 2, func(t *testing.T, r *rig) {
		addr, _ := servePackets(t, r, "udp", "127.0.0.1:0")
		c, err := net.Dial("udp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		buf := make([]byte, 1<<16)
		for _, n := range []int{0, 1, 1400, 9000, 65507, 3} {
			c.Write([]byte(strings.Repeat("x", n)))
			c.SetReadDeadline(time.Now().Add(patience))
			if got, err := c.Read(buf); err != nil || got != n {
				t.Errorf("sent %d bytes, got %d, %v", n, got, err)
			}
		}
	})
}

// More than fits into a batch, from many peers, each of which stays on its loop. Each loop has
// some.
func TestPacketsPeersStay(t *testing.T) {
	engines(t, 2, func(t *testing.T, r *rig) {
		addr, boxes := servePackets(t, r, "udp", "127.0.0.1:0")
		var conns []net.Conn
		for range 50 {
			c, err := net.Dial("udp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			conns = append(conns, c)
		}
		buf := make([]byte, 100)
		for range 4 {
			for _, c := range conns {
				c.Write([]byte("ping"))
			}
			for _, c := range conns {
				c.SetReadDeadline(time.Now().Add(patience))
				if _, err := c.Read(buf); err != nil {
					t.Fatal(err)
				}
			}
		}
		seen := make(map[string]int)
		for i, b := range boxes {
			if len(b.peers) == 0 {
				t.Errorf("loop %d has no peers", i)
			}
			for len(b.peers) > 0 {
				seen[<-b.peers]++
			}
		}
		if len(seen) != len(conns) {
			t.Errorf("%d peers were seen at %d places", len(conns), len(seen))
		}
		for line, n := range seen {
			if n != 4 {
				t.Errorf("%s: %d datagrams, want 4", line, n)
			}
		}
	})
}

func TestPacketsIPv6AndMapped(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		addr, boxes := servePackets(t, r, "udp", "[::]:0")
		_, number, _ := net.SplitHostPort(addr.String())
		for _, host := range []string{"127.0.0.1", "::1"} {
			c, err := net.Dial("udp", net.JoinHostPort(host, number))
			if err != nil {
				t.Skip("no IPv6 here: ", err)
			}
			defer c.Close()
			c.Write([]byte("six"))
			c.SetReadDeadline(time.Now().Add(patience))
			if n, err := c.Read(make([]byte, 9)); n != 3 || err != nil {
				t.Errorf("%s: %d, %v", host, n, err)
			}
			line := <-boxes[0].peers
			if peer := strings.Fields(line)[1]; peer != c.LocalAddr().String() {
				t.Errorf("the peer is %s, was seen as %s", c.LocalAddr(), peer)
			}
		}
	})
}

func TestPacketPortInUse(t *testing.T) {
	engines(t, 2, func(t *testing.T, r *rig) {
		addr, _ := servePackets(t, r, "udp", "127.0.0.1:0")
		for _, network := range []string{"udp", "udp4"} {
			if _, err := r.ListenPacket(context.Background(), net.ListenConfig{}, network, addr.String(), 2); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("%s: a port in use gave %v", network, err)
			}
		}
	})
}

func TestServePacket(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		peer, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		nc, err := net.Dial("udp", peer.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		b := newBox(0)
		own := nc.LocalAddr()
		var s engine.Packets
		r.do(0, func() { s, err = r.ServePacket(0, nc, b) })
		if err != nil {
			t.Fatal(err)
		}
		r.do(0, func() {
			if err := s.Send([]byte("hello"), netip.AddrPort{}, netip.Addr{}); err != nil {
				t.Error(err)
			}
			if err := s.Send(slices.Repeat([]byte("x"), 65508), netip.AddrPort{}, netip.Addr{}); !errors.Is(err, syscall.EMSGSIZE) {
				t.Errorf("a datagram that is too long: %v", err)
			}
		})
		buf := make([]byte, 100)
		peer.SetReadDeadline(time.Now().Add(patience))
		n, from, err := peer.ReadFrom(buf)
		if err != nil || string(buf[:n]) != "hello" || from.String() != own.String() {
			t.Errorf("the peer got %q from %v (%v), %v", buf[:n], from, own, err)
		}
		peer.WriteTo([]byte("hi"), from)
		if got := wait(t, b.peers, "the answer"); got != "0 invalid AddrPort 2" {
			t.Errorf("got %q", got)
		}
		peer.Close()
		r.do(0, func() { s.Send([]byte("gone?"), netip.AddrPort{}, netip.Addr{}) })
		if err := wait(t, b.failed, "the refusal"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("failed with %v", err)
		}
		r.do(0, s.Close)
	})
}
