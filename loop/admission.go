package loop

import (
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// To open a session costs ten times as much as to serve one, and whoever floods a UDP address from
// addresses that are not his own must not keep those waiting who have one. So datagrams of new
// peers wait in a queue until the others of their batch are served, and a token bucket, which holds
// time of the loop, says for how long sessions are opened then, their first answers included.
//
// The bucket is full until one of crowdPart of Server.MaxSessions is open. From then on the address
// is crowded and the bucket earns one of crowdPart of the time that passes: to be busy with a flood
// for all the time there is takes a core from everybody else on the machine. A server whose
// sessions are short, such as for DNS, stays below that.
//
// A new peer's tokens are given back when it has proved its address, as the handler says by
// Conn.LimitReplies. So a crowd of real ones, such as devices that come back when a network does,
// is let in faster and faster, and whoever writes other addresses into his datagrams gains nothing.
const (
	crowdPart  = 16
	bucketSize = 4 * time.Millisecond

	// admitShare is how long sessions are opened at a stretch; and admitLeast, while more waits in
	// the kernel, which may be of peers with a session, or at a crowded address. With less than that
	// in the bucket none is opened.
	admitShare = 500 * time.Microsecond
	admitLeast = 50 * time.Microsecond

	// admitLot is after how many new peers their answers are sent, which may cost more than all
	// else, and is part of the time that they have.
	admitLot = 4

	// maxNewPeers and maxNewBytes are how much may wait in the queue. More is dropped: in a flood
	// from addresses that are nobody's, most of it is worth nothing.
	maxNewPeers = 1024
	maxNewBytes = 256 << 10
)

// An admission is the queue of the new peers of a UDP address, and its bucket.
type admission struct {
	queue []engine.Datagram // copies, the oldest at head
	head  int
	bytes int // of those that wait

	tokens  time.Duration // less than nothing if something took longer than it might
	counted time.Duration // when that was
	cost    time.Duration // of a new peer, on average
	crowded bool          // when it was counted
	called  bool          // a timer calls those who wait
}

func (a *admission) waiting() int { return len(a.queue) - a.head }

// put keeps a copy, if there is room.
func (a *admission) put(d engine.Datagram) bool {
	if a.waiting() >= maxNewPeers || a.bytes+len(d.Data) > maxNewBytes {
		return false
	}
	if len(a.queue) == cap(a.queue) && a.head > 0 {
		a.queue, a.head = slices.Delete(a.queue, 0, a.head), 0
	}
	d.Data = slices.Clone(d.Data)
	a.queue = append(a.queue, d)
	a.bytes += len(d.Data)
	return true
}

// take returns the oldest.
func (a *admission) take() engine.Datagram {
	d := a.queue[a.head]
	a.queue[a.head] = engine.Datagram{}
	a.bytes -= len(d.Data)
	if a.head++; a.waiting() == 0 {
		a.queue, a.head = nil, 0 // a flood may be years away
	}
	return d
}

// earn fills the bucket.
func (a *admission) earn(now time.Duration, crowded bool) {
	a.tokens = min(a.tokens+(now-a.counted)/crowdPart, bucketSize)
	if a.counted, a.crowded = now, crowded; !crowded {
		a.tokens = bucketSize
	}
}

// spend takes d out of the bucket, for n new peers. A loop that has lost its processor meanwhile is
// no reason to wait for long, or to give back much.
func (a *admission) spend(d time.Duration, n int) {
	a.tokens = max(a.tokens-d, -bucketSize)
	if n == 0 {
		return
	}
	cost := min(d/time.Duration(n), admitShare)
	if a.cost == 0 {
		a.cost = cost
	}
	a.cost += (cost - a.cost) / 8
}

// giveBack is for a new peer that has proved its address.
func (a *admission) giveBack() { a.tokens = min(a.tokens+a.cost, bucketSize) }

// newcomer takes a datagram of a peer without a session. Where no session can be opened it ends
// here.
func (p *packetPort) newcomer(d *engine.Datagram) {
	switch s := p.loop.server; {
	case s.sessions.Load() >= int64(s.MaxSessions):
		p.loop.count[numSessions]++
		p.loop.rare = true
		p.refused(ErrTooManyConns, newPeer)
	case !p.admission.put(*d):
		p.loop.count[numLost]++
		p.loop.rare = true
	}
}

// earn fills the bucket of the address.
func (p *packetPort) earn(now time.Duration) {
	s := p.loop.server
	p.admission.earn(now, s.sessions.Load() > int64(s.MaxSessions/crowdPart))
}

// admit opens sessions for those who wait, for as long as they have. busy: the socket has more. It
// reports whether others may come in the next turn, after a look at the sockets. If those must
// wait longer the wheel calls them.
func (p *packetPort) admit(busy bool) (more bool) {
	l, a := p.loop, &p.admission
	p.flush() // what those with a session have been sent
	begun := l.clock()
	if p.earn(begun); a.tokens >= admitLeast {
		end := begun + admitShare
		if busy || a.crowded {
			end = begun + admitLeast
		}
		opened := l.count[numSessions]
		for a.waiting() > 0 && l.clock() < end {
			p.admitSome(end)
		}
		p.flush()
		a.spend(l.clock()-begun, int(l.count[numSessions]-opened))
	}
	return p.admitsMore()
}

// admitSome is admit until one panics.
func (p *packetPort) admitSome(end time.Duration) {
	defer p.loop.rescue(nil)
	for n := 1; ; n++ {
		d := p.admission.take()
		s := p.sessionOf(&d) // of which this may be the second datagram
		if s == nil {
			s = p.accept(&d)
		}
		if s != nil {
			s.received(&d)
		}
		if n%admitLot == 0 {
			p.flush()
		}
		if p.admission.waiting() == 0 || p.loop.clock() >= end {
			break
		}
	}
	p.loop.returned = true
}

// admitsMore reports whether there are new peers that may come in the next turn, and has those
// called that must wait longer.
func (p *packetPort) admitsMore() bool {
	l, a := p.loop, &p.admission
	if a.waiting() == 0 {
		return false
	}
	now := l.clock()
	if p.earn(now); a.tokens >= admitLeast {
		return true
	}
	if !a.called {
		a.called = true
		l.wheel.At(now+(admitLeast-a.tokens)*crowdPart, func() {
			a.called = false
			l.again()
		})
	}
	return false
}

// admitPeers goes on with new peers that wait, and reports whether some are left for the next turn.
// Those of a socket that was read since the last turn have had their share then, and it is read
// again before the next.
func (l *Loop) admitPeers() (more bool) {
	for _, p := range l.ports {
		switch {
		case p.admission.waiting() == 0:
		case p.read:
			p.read = false
			more = p.admitsMore() || more
		default:
			more = p.admit(false) || more
		}
	}
	return more
}
