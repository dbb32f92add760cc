package loop

import (
	"context"
	"net"
	"net/netip"
	"strings"
)

// beginPackets makes a UDP session on the loop, once the name is resolved.
func (a *dialing) beginPackets(local, remote netip.AddrPort, literal bool) {
	if literal {
		a.connectPackets(local, remote)
		return
	}
	l := a.loop
	ctx, cancel := context.WithCancel(context.Background())
	a.stop = cancel
	l.server.newcomers.Go(func() {
		defer cancel()
		remotes, err := lookUp(ctx, a.network, a.address)
		_ = l.urge(func() {
			if err != nil {
				a.fail(a.wrap(err, dialAddr{a.network, a.address}))
				return
			}
			a.connectAnyPackets(remotes)
		})
	})
}

// lookUp returns the addresses of a name, of the family that the network says.
func lookUp(ctx context.Context, network, address string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return nil, err
	}
	family := strings.TrimPrefix(network, "udp")
	if host == "" && family != "6" {
		host = "127.0.0.1"
	} else if host == "" {
		host = "::1"
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip"+family, host)
	var all []netip.AddrPort
	for _, ip := range ips {
		all = append(all, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	return all, err
}

// connectAnyPackets opens a session with the first address for which that can be done: one of a
// family that this machine, or the local address, does not have is passed over.
func (a *dialing) connectAnyPackets(remotes []netip.AddrPort) {
	var from netip.AddrPort
	u, bound := a.dialer.LocalAddr.(*net.UDPAddr)
	var first error
	for _, remote := range remotes {
		if a.over {
			return
		}
		if bound {
			from = localOf(u.AddrPort(), remote.Addr().Is4())
		}
		if err := a.tryPackets(from, remote); err != nil && first == nil {
			first = err
		} else if err == nil {
			return
		}
	}
	a.fail(first)
}

// connectPackets opens the session, or says why not.
func (a *dialing) connectPackets(local, remote netip.AddrPort) {
	if err := a.tryPackets(local, remote); err != nil {
		a.fail(err)
	}
}

// tryPackets opens the session.
func (a *dialing) tryPackets(local, remote netip.AddrPort) error {
	l := a.loop
	if remote.Port() == 0 { // the kernel would take it, and refuse all that is sent
		return a.wrap(&net.AddrError{Err: "port 0 cannot be dialled", Addr: a.address}, net.UDPAddrFromAddrPort(remote))
	}
	p := &packetPort{loop: l}
	to, own, err := l.server.engine.ConnectPacket(l.index, a.control(), local, remote, (*portSink)(p))
	if err != nil {
		return a.wrap(err, net.UDPAddrFromAddrPort(remote))
	}
	p.to, p.local = to, net.UDPAddrFromAddrPort(own)
	p.only = &udpSession{port: p}
	if a.gone() {
		to.Close()
		return nil
	}
	l.begin(a.arrival(p.only, p.local, net.UDPAddrFromAddrPort(remote)))
	return nil
}
