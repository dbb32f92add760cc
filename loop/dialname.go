package loop

import (
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/timing"
)

// raceDelay is how long an address has before the next one is tried beside it, as package net has
// it (RFC 8305 says 250 ms).
const raceDelay = 300 * time.Millisecond

// A race is a connection to a name with several addresses: the first that accepts is taken.
type race struct {
	a       *dialing
	remotes []netip.AddrPort
	next    int
	running int
	cancels []func()
	timer   timing.Timer
	first   error
	over    bool
}

// resolve looks the name up on a goroutine. The loop connects: to hand a socket of package net to
// it costs more than all the rest.
func (a *dialing) resolve() {
	l := a.loop
	ctx, cancel := context.WithCancel(context.Background())
	a.stop = cancel
	l.server.newcomers.Go(func() {
		defer cancel()
		remotes, err := lookUpAll(ctx, a.network, a.address)
		_ = l.urge(func() {
			switch {
			case a.over:
			case err != nil:
				a.fail(a.wrap(err, dialAddr{a.network, a.address}))
			default:
				r := &race{a: a, remotes: remotes}
				a.stop = r.stop
				r.start()
			}
		})
	})
}

// lookUpAll returns the addresses of a name, the two families in turns, the resolver's favourite
// first.
func lookUpAll(ctx context.Context, network, address string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip"+network[len("tcp"):], host)
	if err != nil {
		return nil, err
	}
	var families [2][]netip.AddrPort
	for _, ip := range ips {
		ip = ip.Unmap()
		i := 0
		if ip.Is4() != ips[0].Unmap().Is4() {
			i = 1
		}
		families[i] = append(families[i], netip.AddrPortFrom(ip, uint16(port)))
	}
	var all []netip.AddrPort
	for i := range max(len(families[0]), len(families[1])) {
		for _, f := range families {
			if i < len(f) {
				all = append(all, f[i])
			}
		}
	}
	return all, nil
}

// start tries the next address.
func (r *race) start() {
	a, l := r.a, r.a.loop
	remote := r.remotes[r.next]
	r.next++
	opened := func(sock engine.Socket, own netip.AddrPort, err error) engine.Sink {
		r.running--
		if err == nil {
			r.stop()
			return a.opened(sock, net.TCPAddrFromAddrPort(own), net.TCPAddrFromAddrPort(remote))
		}
		l.enter()
		r.failed(a.wrap(err, net.TCPAddrFromAddrPort(remote)))
		l.leave()
		return nil
	}
	cancel, ok := l.server.engine.Connect(l.index, netip.AddrPort{}, remote, opened)
	if !ok { // none of them then: package net does it all
		r.stop()
		a.dial()
		return
	}
	r.running++
	r.cancels = append(r.cancels, cancel)
	if l.wheel.Stop(r.timer); r.next < len(r.remotes) {
		r.timer = l.wheel.At(l.after(raceDelay), r.start)
	}
}

// failed goes on with the next address, or tells the first failure.
func (r *race) failed(err error) {
	if r.first == nil {
		r.first = err
	}
	switch {
	case r.over: // one has won, whose TLS handshake may be under way, or all are given up
	case r.next < len(r.remotes):
		r.start()
	case r.running == 0:
		r.a.fail(r.first)
	}
}

// stop ends all attempts that have not ended.
func (r *race) stop() {
	r.over = true
	r.a.loop.wheel.Stop(r.timer)
	for _, cancel := range r.cancels {
		cancel()
	}
}
