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
		remote, err := lookUp(ctx, a.network, a.address)
		_ = l.urge(func() {
			if err != nil {
				a.fail(a.wrap(err, dialAddr{a.network, a.address}))
				return
			}
			var from netip.AddrPort
			if u, ok := a.dialer.LocalAddr.(*net.UDPAddr); ok {
				from = localOf(u.AddrPort(), remote.Addr().Is4())
			}
			a.connectPackets(from, remote)
		})
	})
}

// lookUp returns the first address of a name, of the family that the network says.
func lookUp(ctx context.Context, network, address string) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return netip.AddrPort{}, err
	}
	family := strings.TrimPrefix(network, "udp")
	if host == "" && family != "6" {
		host = "127.0.0.1"
	} else if host == "" {
		host = "::1"
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip"+family, host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(port)), nil
}

// connectPackets opens the session.
func (a *dialing) connectPackets(local, remote netip.AddrPort) {
	if a.over {
		return
	}
	l := a.loop
	p := &packetPort{loop: l}
	to, own, err := l.server.engine.ConnectPacket(l.index, local, remote, (*portSink)(p))
	if err != nil {
		a.fail(a.wrap(err, net.UDPAddrFromAddrPort(remote)))
		return
	}
	p.to, p.local = to, net.UDPAddrFromAddrPort(own)
	p.only = &udpSession{port: p}
	if !a.end() {
		to.Close()
		return
	}
	a.counted = false
	_, _ = l.begin(a.profile(), p.only, l.server.lastID.Add(1), p.local, net.UDPAddrFromAddrPort(remote))
}
