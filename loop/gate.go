package loop

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// refusalLog is how often refusals are logged at most.
const refusalLog = time.Second

// A gate holds the limits that concern connections which are not yet anyone's.
type gate struct {
	mu    sync.Mutex
	perIP int
	conns map[netip.Addr]int // nil without a limit

	interval time.Duration // between two accepts, 0 without a limit
	burst    time.Duration // how far ahead of that they may be
	next     time.Time

	logged     time.Time
	suppressed int // refusals since then
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
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	ip, ok := netip.AddrFromSlice(t.IP)
	return ip.Unmap(), ok
}

// log writes a line about a refusal, unless there was one a moment ago.
func (g *gate) log(logger *zerolog.Logger, reason error, remote net.Addr) {
	g.mu.Lock()
	now := time.Now()
	quiet := now.Sub(g.logged) < refusalLog
	n := g.suppressed
	if quiet {
		g.suppressed++
	} else {
		g.logged, g.suppressed = now, 0
	}
	g.mu.Unlock()
	if !quiet {
		logger.Warn().Err(reason).Stringer("remote", remote).Int("more", n).Msg("connection refused")
	}
}
