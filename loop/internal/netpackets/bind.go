package netpackets

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
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
				tellLocal(fd, network == "udp6")
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

// manyLocal reports whether a socket that is bound to that address may receive what was sent to
// others: whether it is none of this machine's own, but a wildcard, a group of multicast, or
// everybody in a network.
func manyLocal(address string) bool {
	bound, err := netip.ParseAddrPort(address)
	if err != nil { // a wildcard without digits
		return true
	}
	own, _ := net.InterfaceAddrs()
	return !slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(bound.Addr().AsSlice())
	})
}
