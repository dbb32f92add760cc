package loop

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// logEvery is how often something that peers can cause is logged at most.
const logEvery = time.Second

// A gate holds the limits that concern connections which are not yet anyone's.
type gate struct {
	mu    sync.Mutex
	perIP int
	conns map[netip.Addr]int // nil without a limit

	interval time.Duration // between two accepts, 0 without a limit
	burst    time.Duration // how far ahead of that they may be
	next     time.Time
}

func (g *gate) init(perIP, rate int) {
	if g.perIP = perIP; perIP > 0 {
		g.conns = make(map[netip.Addr]int)
	}
	if rate > 0 {
		g.interval = time.Second / time.Duration(rate)
		g.burst = time.Second / 10
	}
}

// wait returns how long to wait before accepting one more. It is the generic cell rate algorithm of ITU-T I.371.
func (g *gate) wait(now time.Time) time.Duration {
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

// enter counts a connection and reports whether its address may have one more.
func (g *gate) enter(remote net.Addr) bool {
	ip, ok := addrIP(remote)
	if g.conns == nil || !ok {
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

func (g *gate) leave(remote net.Addr) {
	ip, ok := addrIP(remote)
	if g.conns == nil || !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns[ip]--; g.conns[ip] <= 0 {
		delete(g.conns, ip)
	}
}

func addrIP(a net.Addr) (netip.Addr, bool) {
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

// A logLimit lets one line pass in a while, and counts the others: what peers can cause must not fill the log.
type logLimit struct {
	mu         sync.Mutex
	last       time.Time
	suppressed int // lines since then
}

// pass reports whether a line may be written, and how many were not since the last one.
func (g *logLimit) pass() (suppressed int, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if now.Sub(g.last) < logEvery {
		g.suppressed++
		return 0, false
	}
	suppressed = g.suppressed
	g.last, g.suppressed = now, 0
	return suppressed, true
}

// logRefusal writes a line about a connection that is not taken.
func (s *Server) logRefusal(reason error, remote net.Addr) {
	if more, ok := s.refusals.pass(); ok {
		s.Logger.Warn().Err(reason).Stringer("remote", remote).Int("more", more).Msg("connection refused")
	}
}
