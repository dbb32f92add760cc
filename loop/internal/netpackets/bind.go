package netpackets

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// portRoom is how many bytes may wait in the kernel for a port's socket. Linux doubles that and
// counts three quarters of a kilobyte of its own with each datagram: 10,900 small ones. The default
// is room for 280, which is what a flood sends in 5 ms; a loop that has to share its core is away
// for longer.
const portRoom = 4 << 20

// listen binds one socket by lc. prepare, which may be nil, is called before that, and before what
// lc has for that.
func listen(ctx context.Context, lc net.ListenConfig, network, address string,
	prepare func(fd uintptr) error) (*Socket, error) {
	control, tells := lc.Control, false
	lc.Control = func(network, address string, c syscall.RawConn) error {
		tells = manyLocal(address)
		var failed error
		err := c.Control(func(fd uintptr) {
			makeRoom(fd)
			if tells {
				tells = tellLocal(fd, network == "udp6")
			}
			if prepare != nil {
				failed = prepare(fd)
			}
		})
		if err = errors.Join(err, failed); err != nil || control == nil {
			return err
		}
		return control(network, address, c)
	}
	pc, err := lc.ListenPacket(ctx, network, address)
	if err != nil {
		return nil, err
	}
	sock, err := newSocket(pc.(*net.UDPConn), tells)
	if err != nil {
		return nil, errors.Join(err, pc.Close())
	}
	return sock, nil
}

// manyLocal reports whether a socket that is bound to that address receives what was sent to
// others: a wildcard, a group of multicast, or everybody, in all networks or in one.
func manyLocal(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return err == nil
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && (ip.IsUnspecified() || ip.IsMulticast() || isBroadcast(ip))
}

// isBroadcast reports whether ip is everybody in a network that this machine is in, or in all.
func isBroadcast(ip netip.Addr) bool {
	if !ip.Is4() {
		return false
	}
	if ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.To4() == nil || len(n.Mask) != net.IPv4len {
			continue
		}
		if ones, _ := n.Mask.Size(); ones >= 31 {
			continue
		}
		last := n.IP.To4().Mask(n.Mask)
		for i := range last {
			last[i] |= ^n.Mask[i]
		}
		if ip.As4() == [4]byte(last) {
			return true
		}
	}
	return false
}
