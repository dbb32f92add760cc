// Package limits holds what bounds a server from outside and what outsiders may cost it: the memory
// of the process, the connections of one address and in one second, the log lines of one kind in one
// second. Any goroutine may call what is in it.
package limits

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// A Gate lets connections in that are not yet anyone's, or not.
type Gate struct {
	mu    sync.Mutex
	perIP int
	bits6 int                // of an IPv6 address that count
	conns map[netip.Addr]int // nil without a limit

	interval time.Duration // between two, 0 without a limit
	burst    time.Duration // how far ahead of that they may be
	next     time.Time
}

// NewGate returns a Gate that lets perIP connections of one address be in at a time, and rate of all
// come in a second, a tenth of that at once. 0 means no limit. Of IPv6 addresses the first bits6
// bits count: all else is the client's own to choose.
func NewGate(perIP, bits6, rate int) *Gate {
	g := &Gate{perIP: perIP, bits6: bits6}
	if perIP > 0 {
		g.conns = make(map[netip.Addr]int)
	}
	if rate > 0 {
		g.interval = time.Second / time.Duration(rate)
		g.burst = time.Second / 10
	}
	return g
}

// Wait returns how long to wait before one more is let in, and counts on it. It is the generic cell
// rate algorithm of ITU-T I.371.
func (g *Gate) Wait(now time.Time) time.Duration {
	if g.interval == 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next.Before(now) {
		g.next = now
	}
	d := g.next.Sub(now) - g.burst
	g.next = g.next.Add(g.interval)
	return max(0, d)
}

// Enter counts a connection and reports whether its address may have one more. A connection that is
// not TCP has no address to count.
func (g *Gate) Enter(remote net.Addr) bool {
	if g.conns == nil {
		return true
	}
	ip, ok := g.counted(remote)
	if !ok {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns[ip] >= g.perIP {
		return false
	}
	g.conns[ip]++
	return true
}

// Count is Enter without a limit.
func (g *Gate) Count(remote net.Addr) {
	if g.conns == nil {
		return
	}
	if ip, ok := g.counted(remote); ok {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.conns[ip]++
	}
}

// Leave takes back a Count, or an Enter that returned true.
func (g *Gate) Leave(remote net.Addr) {
	if g.conns == nil {
		return
	}
	ip, ok := g.counted(remote)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns[ip]--; g.conns[ip] <= 0 {
		delete(g.conns, ip)
	}
}

// counted returns the address under which a connection counts.
func (g *Gate) counted(remote net.Addr) (netip.Addr, bool) {
	ip, ok := IP(remote)
	if !ok || !ip.Is6() || ip.IsLinkLocalUnicast() || nat64Local.Contains(ip) { // all of a link have one network
		return ip, ok
	}
	b := ip.As16()
	switch {
	case nat64.Contains(ip):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(ip):
		return netip.AddrFrom4([4]byte(b[2:])), true
	}
	network, err := ip.WithZone("").Prefix(g.bits6)
	return network.Addr(), err == nil
}

// Networks in which each client of IPv4 has an address that contains its own: to count by the first
// bits would take all of IPv4 for one client, or give one client all networks of its own. In
// nat64Local the place of the client's address is the translator's choice, so all bits count there.
var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")   // RFC 6052
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215
	sixToFour  = netip.MustParsePrefix("2002::/16")      // RFC 3056
)

// IP returns the IP address in a, and whether there is one: a unix socket has none.
func IP(a net.Addr) (netip.Addr, bool) {
	var raw net.IP
	switch a := a.(type) {
	case *net.TCPAddr:
		raw = a.IP
	case *net.UDPAddr:
		raw = a.IP
	}
	ip, ok := netip.AddrFromSlice(raw)
	return ip.Unmap(), ok
}
