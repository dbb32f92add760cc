package loop

import (
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

const (
	// A UDP address is crowded when one of fewSessions of Server.MaxSessions is open. From then on
	// new peers have one of welcomePart of their loop's time, of which welcomeSaved can be saved
	// up. A server whose sessions are short, such as for DNS, stays below that, and new peers may
	// have all the time there is.
	fewSessions  = 16
	welcomePart  = 8
	welcomeSaved = 4 * time.Millisecond

	// A UDP address is flooded when floodLeast datagrams of new peers were turned away within
	// floodWindow, until that ceases. It has its socket rest for floodRest then after each look.
	floodLeast  = 8
	floodWindow = time.Millisecond
	floodRest   = 100 * time.Microsecond
)

// A doorkeeper knows what a UDP address may spend on new peers, and whether it is flooded by them.
type doorkeeper struct {
	left     time.Duration // of what may be spent; less than nothing if it took longer
	counted  time.Duration // when that was
	waits    bool          // for more, by a timer
	away     int           // datagrams that were turned away since the last look
	aways    int           // in this window
	before   int           // in the one before
	windowed time.Duration // when this one began
}

// spend takes d off. A loop that has lost its processor meanwhile is no reason to wait for long.
func (k *doorkeeper) spend(d time.Duration) { k.left = max(k.left-d, -welcomeSaved) }

// earn returns what may be spent now.
func (k *doorkeeper) earn(now time.Duration) time.Duration {
	k.left = min(k.left+(now-k.counted)/welcomePart, welcomeSaved)
	k.counted = now
	return k.left
}

// flooded takes the datagrams that were turned away since it was called last.
func (k *doorkeeper) flooded(now time.Duration) bool {
	if k.away+k.aways+k.before == 0 {
		return false
	}
	if since := now - k.windowed; since >= floodWindow {
		k.before = 0
		if since < 2*floodWindow {
			k.before = k.aways
		}
		k.aways, k.windowed = 0, now
	}
	k.aways += k.away
	k.away = 0
	return max(k.aways, k.before) >= floodLeast
}

// allowance is for how long sessions may be opened now.
func (p *packetPort) allowance(now time.Duration) time.Duration {
	left := p.door.earn(now)
	if s := p.loop.server; s.sessions.Load() < int64(s.MaxSessions/fewSessions) {
		return never
	}
	return left
}

// putOff reports whether those who wait must wait longer, for which it sees to it that they are
// called.
func (p *packetPort) putOff() bool {
	l := p.loop
	now := l.clock()
	left := p.allowance(now)
	if left >= welcomeLeast {
		return false
	}
	if !p.door.waits {
		p.door.waits = true
		l.wheel.At(now+(welcomeLeast-left)*welcomePart, func() {
			p.door.waits = false
			l.again()
		})
	}
	return true
}

// rest has the socket not looked at for a moment. To be woken for a datagram costs several times
// what it costs to read one and to turn its sender away, and in a flood each would do that. Those
// who have a session wait for a moment in place of a loop that is busy with the flood.
func (p *packetPort) rest() {
	if r, ok := p.to.(engine.Rester); ok {
		r.Rest(floodRest)
	}
}
