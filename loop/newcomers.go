package loop

import (
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

const (
	// welcomeShare is how long sessions are opened for new peers of a UDP address at a stretch,
	// while those who have one wait; and welcomeBusy, while more waits in the kernel, which is to
	// be read before all else, as peers with a session may be in it, or where there is a crowd.
	welcomeShare = 500 * time.Microsecond
	welcomeBusy  = 50 * time.Microsecond

	// welcomeLot is after how many of them it is sent what they have been answered, which may cost
	// more than all else, and belongs to the time that they have.
	welcomeLot = 4

	// welcomeLeast is what it is not worth to begin for.
	welcomeLeast = welcomeBusy

	// maxLate and maxLateBytes are how much of new peers waits for that. What is more is dropped:
	// in a flood from addresses that are nobody's, most of it is worth nothing.
	maxLate      = 1024
	maxLateBytes = 256 << 10
)

// latecomers are datagrams of peers without a session that wait until those with one are served,
// the oldest first.
type latecomers struct {
	all   []engine.Datagram
	taken int // of all
	bytes int // of the others
}

func (q *latecomers) waiting() []engine.Datagram { return q.all[q.taken:] }

// put keeps a copy, if there is room.
func (q *latecomers) put(d engine.Datagram) bool {
	if len(q.waiting()) >= maxLate || q.bytes+len(d.Data) > maxLateBytes {
		return false
	}
	if len(q.all) == cap(q.all) && q.taken > 0 {
		q.all, q.taken = slices.Delete(q.all, 0, q.taken), 0
	}
	d.Data = slices.Clone(d.Data)
	q.all = append(q.all, d)
	q.bytes += len(d.Data)
	return true
}

// leave forgets all but the last n.
func (q *latecomers) leave(n int) {
	for taken := len(q.all) - n; q.taken < taken; q.taken++ {
		q.bytes -= len(q.all[q.taken].Data)
		q.all[q.taken] = engine.Datagram{}
	}
	if n == 0 {
		*q = latecomers{} // a flood may be years away
	}
}

// newcomer takes a datagram of a peer without a session, for later: to open a session costs ten
// times as much as to serve one, and whoever floods a socket from addresses that are not his own
// must not keep those waiting who have one. Where no session can be opened it ends here.
func (p *packetPort) newcomer(d *engine.Datagram) {
	if s := p.loop.server; s.sessions.Load() < int64(s.MaxSessions) {
		p.fresh = append(p.fresh, *d)
		return
	}
	p.loop.count.sessions++
	p.loop.rare = true
	p.refused(ErrTooManyConns, newPeer)
}

// welcomeFresh opens sessions for the peers in p.fresh, behind those who wait already, while there
// is time. The others wait, too, for a turn behind a look at the sockets.
func (p *packetPort) welcomeFresh() {
	p.flush() // what those with a session have been sent
	for _, d := range p.welcome(p.fresh, p.busy) {
		if !p.late.put(d) {
			p.loop.count.lost++
			p.loop.rare = true
		}
	}
	clear(p.fresh)
	p.fresh = p.fresh[:0]
	if len(p.late.waiting()) > 0 && !p.putOff() {
		p.loop.again()
	}
}

// welcome opens sessions for those who wait, and then for these, for as long as their share and the
// allowance last. It returns the datagrams of these that are left.
func (p *packetPort) welcome(fresh []engine.Datagram, busy bool) (rest []engine.Datagram) {
	begun := p.loop.clock()
	left := p.allowance(begun)
	if left < welcomeLeast {
		return fresh
	}
	share, opened := welcomeShare, p.loop.count.sessions
	if p.crowded = left != never; busy || p.crowded {
		share = welcomeBusy
	}
	if late := p.late.waiting(); len(late) > 0 {
		p.late.leave(len(p.welcomeAll(late, begun+share)))
	}
	if rest = fresh; len(p.late.waiting()) == 0 {
		rest = p.welcomeAll(fresh, begun+share)
	}
	p.flush() // what they have been sent is part of what they cost
	p.saved.spend(p.loop.clock()-begun, int(p.loop.count.sessions-opened))
	return rest
}

// welcomeAll opens sessions until the end, and returns the datagrams that are left.
func (p *packetPort) welcomeAll(late []engine.Datagram, end time.Duration) (rest []engine.Datagram) {
	for rest = late; len(rest) > 0 && p.loop.clock() < end; {
		rest = p.welcomeSome(rest, end)
	}
	return rest
}

// welcomeSome is welcomeAll until one panics.
func (p *packetPort) welcomeSome(late []engine.Datagram, end time.Duration) (rest []engine.Datagram) {
	rest = late
	defer p.loop.rescue()
	for more := true; more; more = len(rest) > 0 && p.loop.clock() < end {
		d := &rest[0]
		rest = rest[1:]
		s := p.sessionOf(d.Peer) // of which this may be the second datagram
		if s == nil {
			s = p.accept(d.Peer)
		}
		if s != nil {
			s.received(d)
		}
		if (len(late)-len(rest))%welcomeLot == 0 {
			p.flush()
		}
	}
	p.loop.returned = true
	return rest
}

// runLate goes on with new peers that wait, and reports whether some are left who may come next.
// Those of a socket that was read since the last turn have had their share then, and it is read
// again before the next.
func (l *Loop) runLate() (more bool) {
	for _, p := range l.ports {
		if len(p.late.waiting()) == 0 {
			continue
		}
		if p.read {
			p.read = false
		} else {
			p.welcome(nil, false)
		}
		more = len(p.late.waiting()) > 0 && !p.putOff() || more
	}
	return more
}
