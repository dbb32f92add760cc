// Package limits holds what bounds a server from outside and what outsiders may cost it: the memory
// of the process, the connections of one address and in one second, the log lines of one kind in
// one second. Any goroutine may call what is in it.
package limits

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// A Limiter bounds the connections of one address at a time, and those of all in a second.
type Limiter struct {
	mu    sync.Mutex
	perIP int
	bits6 int                // of an IPv6 address that count
	conns map[netip.Addr]int // nil without a limit

	interval time.Duration // between two, 0 without a limit
	burst    time.Duration // how far ahead of that they may be
	next     time.Time
}

// NewLimiter returns a Limiter for perIP connections of one address, and rate of all in a second, a
// tenth of that at once. 0 means no limit. Of IPv6 addresses the first bits6
// bits count: all else is the client's own to choose.
func NewLimiter(perIP, bits6, rate int) *Limiter {
	l := &Limiter{perIP: perIP, bits6: bits6}
	if perIP > 0 {
		l.conns = make(map[netip.Addr]int)
	}
	if rate > 0 {
		l.interval = time.Second / time.Duration(rate)
		l.burst = time.Second / 10
	}
	return l
}

// Reserve counts the next connection into the rate, and returns how long the caller has to wait
// before it accepts it. It is the generic cell
// rate algorithm of ITU-T I.371.
func (l *Limiter) Reserve(now time.Time) time.Duration {
	if l.interval == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next.Before(now) {
		l.next = now
	}
	d := l.next.Sub(now) - l.burst
	l.next = l.next.Add(l.interval)
	return max(0, d)
}

// Unreserve takes back a Reserve, of a connection that was refused.
func (l *Limiter) Unreserve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = l.next.Add(-l.interval)
}

// Acquire counts a connection and reports whether its address may have one more. A connection that
// is not TCP has no address to count.
func (l *Limiter) Acquire(remote net.Addr) bool {
	if l.conns == nil {
		return true
	}
	ip, ok := l.counted(remote)
	if !ok {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[ip] >= l.perIP {
		return false
	}
	l.conns[ip]++
	return true
}

// Count is Acquire without a limit.
func (l *Limiter) Count(remote net.Addr) {
	if l.conns == nil {
		return
	}
	if ip, ok := l.counted(remote); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns[ip]++
	}
}

// Release takes back a Count, or an Acquire that returned true.
func (l *Limiter) Release(remote net.Addr) {
	if l.conns == nil {
		return
	}
	ip, ok := l.counted(remote)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[ip]--; l.conns[ip] <= 0 {
		delete(l.conns, ip)
	}
}

// counted returns the address under which a connection counts.
func (l *Limiter) counted(remote net.Addr) (netip.Addr, bool) {
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
	network, err := ip.WithZone("").Prefix(l.bits6)
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
