package loop

import "time"

// A UDP server is crowded when one of fewSessions of Server.MaxSessions is open. From then on new
// peers of an address have one of welcomePart of their loop's time, of which welcomeSaved can be
// saved up: to be busy with a flood for all the time there is takes a core from those who have a
// session, and from everybody else on the machine. A server whose sessions are short, such as for
// DNS, stays below that, and new peers have what time there is.
//
// What a new peer has cost is given back when it has proved its address, as the handler says by
// Conn.LimitReplies. So a crowd of real ones, such as devices that come back when a network does, is
// let in faster and faster, by a sixteenth of the time more with each of its round trips, and whoever
// writes other addresses into his datagrams gains nothing.
const (
	fewSessions  = 16
	welcomePart  = 16
	welcomeSaved = 4 * time.Millisecond
)

// An allowance is the time that may be spent on the new peers of a UDP address.
type allowance struct {
	left    time.Duration // less than nothing if something took longer than it might
	counted time.Duration // when that was
	waits   bool          // for more, by a timer
	each    time.Duration // what a new peer costs, on average
}

// spend takes d off, for n new peers. A loop that has lost its processor meanwhile is no reason to wait
// for long, or to give back much.
func (a *allowance) spend(d time.Duration, n int) {
	a.left = max(a.left-d, -welcomeSaved)
	if n == 0 {
		return
	}
	each := min(d/time.Duration(n), welcomeShare)
	if a.each == 0 {
		a.each = each
	}
	a.each += (each - a.each) / 8
}

// giveBack is for one of them who has proved its address.
func (a *allowance) giveBack() { a.left = min(a.left+a.each, welcomeSaved) }

// earn returns what may be spent now.
func (a *allowance) earn(now time.Duration) time.Duration {
	a.left = min(a.left+(now-a.counted)/welcomePart, welcomeSaved)
	a.counted = now
	return a.left
}

// allowance returns for how long sessions may be opened now.
func (p *packetPort) allowance(now time.Duration) time.Duration {
	left := p.saved.earn(now)
	if s := p.loop.server; s.sessions.Load() <= int64(s.MaxSessions/fewSessions) {
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
	if !p.saved.waits {
		p.saved.waits = true
		l.wheel.At(now+(welcomeLeast-left)*welcomePart, func() {
			p.saved.waits = false
			l.again()
		})
	}
	return true
}
