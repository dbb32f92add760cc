package loop

import (
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Opening a session costs ten times as much as serving one, and a flood from spoofed addresses must
// not delay existing sessions. So datagrams of new peers are queued until the others of their batch
// are served, and a token bucket, which holds time of the loop, limits for how long sessions are then
// opened, including their first answers.
//
// The bucket is full until one of crowdPart of Server.Limits.MaxSessions is open. From then on the
// address is crowded and the bucket earns one of crowdPart of the time that passes: a loop
// that spends all its time on a flood takes a core from the rest of the machine. A server whose
// sessions are short, such as for DNS, stays below that.
//
// A new peer's tokens are returned when it has proved its address and the handler calls
// Conn.LimitReplies. So a crowd of real peers, such as devices that come back when a network does,
// is let in faster and faster, and a peer that spoofs addresses gains nothing.
const (
	crowdPart  = 16
	bucketSize = 4 * time.Millisecond

	openSlice = 500 * time.Microsecond // for which sessions are opened between two looks at the socket
	openLeast = 50 * time.Microsecond  // that the bucket must hold

	// admitLot is after how many new peers their answers are sent, which may cost more than all
	// else, and is part of the time that they have.
	openLot = 4

	// maxNewPeers and maxNewBytes are how much may wait in the queue. More is dropped: in a flood
	// from addresses that are nobody's, most of it is worth nothing.
	maxNewPeers = 1024
	maxNewBytes = 256 << 10
)

// newPeers is the queue of the new peers of a UDP address, and its bucket.
type newPeers struct {
	queue     []engine.Datagram // copies
	bytes     int               // of those that wait
	scheduled bool              // Run is about to be called

	tokens     time.Duration // in the bucket; negative after opening took longer than it had tokens
	refilledAt time.Duration // when the bucket was last refilled
	crowded    bool          // many sessions were open then, so it was refilled slowly
	lastCost   time.Duration // of a new peer, when the last ones came in
}

// put keeps a copy, if there is room.
func (a *newPeers) put(d engine.Datagram) bool {
	if len(a.queue) >= maxNewPeers || a.bytes+len(d.Data) > maxNewBytes {
		return false
	}
	d.Data = slices.Clone(d.Data)
	a.queue = append(a.queue, d)
	a.bytes += len(d.Data)
	return true
}

// take returns the oldest.
func (a *newPeers) take() engine.Datagram {
	d := a.queue[0]
	a.queue[0] = engine.Datagram{}
	a.bytes -= len(d.Data)
	if a.queue = a.queue[1:]; len(a.queue) == 0 {
		a.queue = nil // a flood may be years away
	}
	return d
}

// giveBack is for a new peer that has proved its address.
func (a *newPeers) giveBack() { a.tokens = min(a.tokens+a.lastCost, bucketSize) }

// queueNewPeer takes a datagram of a peer without a session. Where no session can be opened it ends
// here.
func (p *packetPort) queueNewPeer(d *engine.Datagram) {
	switch s := p.loop.server; {
	case s.sessions.Load() >= int64(s.Limits.MaxSessions):
		p.loop.count.add(numSessions, 1)
		p.refused(ErrTooManyConns, newPeer)
	case !p.newPeers.put(*d):
		p.loop.count.add(numLost, 1)
	}
}

// refill fills the bucket of the address, and returns the time.
func (p *packetPort) refill() (now time.Duration) {
	a, s := &p.newPeers, p.loop.server
	now = p.loop.clock()
	a.tokens = min(a.tokens+(now-a.refilledAt)/crowdPart, bucketSize)
	a.refilledAt, a.crowded = now, s.sessions.Load() > int64(s.Limits.MaxSessions/crowdPart)
	if !a.crowded {
		a.tokens = bucketSize
	}
	return now
}

// Run opens sessions for those who wait, as long as the bucket allows. For those who are left it
// comes again after a look at the sockets, or when the bucket holds enough.
func (p *packetPort) Run() {
	l, a := p.loop, &p.newPeers
	a.scheduled = false
	p.flush() // what those with a session have been sent
	begun := p.refill()
	opened := l.count[numSessions].Load()
	for end := begun + min(openSlice, a.tokens); a.tokens >= openLeast && len(a.queue) > 0 && l.clock() < end; {
		p.openSessions(end)
	}
	p.flush()
	took := l.clock() - begun
	if n := l.count[numSessions].Load() - opened; n > 0 {
		a.lastCost = min(took/time.Duration(n), openSlice)
	}
	// A loop that has lost its processor meanwhile is no reason to wait for long.
	a.tokens = max(a.tokens-took, -bucketSize)
	now := p.refill()
	if a.scheduled = len(a.queue) > 0; !a.scheduled {
		return
	}
	if a.tokens >= openLeast {
		l.runSoon(p)
		return
	}
	l.wheel.At(now+(openLeast-a.tokens)*crowdPart, func() { l.runSoon(p) })
}

// openSessions opens sessions until the time is over, nobody waits, or one panics.
func (p *packetPort) openSessions(end time.Duration) {
	p.loop.guardCurrent(func() { p.openSessionsGuarded(end) })
}

func (p *packetPort) openSessionsGuarded(end time.Duration) {
	for n := 1; ; n++ {
		d := p.newPeers.take()
		s := p.sessions[sessionKey{d.Peer, d.Local}] // of which this may be the second datagram
		if s == nil {
			s = p.accept(&d)
		}
		if s != nil {
			s.received(&d)
		}
		if n%openLot == 0 {
			p.flush()
		}
		if len(p.newPeers.queue) == 0 || p.loop.clock() >= end {
			break
		}
	}
}
