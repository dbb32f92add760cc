// Package watchdog reports loops that are blocked, while they are, with the stack of what blocks
// them.
package watchdog

import (
	"sync/atomic"
	"time"
)

// NoTurn is when the turn of a loop began that is in none. Zero is a time like any other.
const NoTurn = -1

// A Pulse is what a loop tells its watchdog, and what that finds. Begin, Seen, End and Long are the
// loop's; any goroutine may call the others. It must not be copied, and must be made by Init.
type Pulse struct {
	since     atomic.Int64  // when the turn that runs began, or NoTurn
	looked    atomic.Int64  // when the turn began that the watchdog saw last
	blocked   atomic.Uint64 // turns that were found to be too long
	goroutine atomic.Uint64

	// The last turn that was too long.
	longSince, longTook atomic.Int64
}

// Init makes p the pulse of a loop that is in no turn.
func (p *Pulse) Init() { p.since.Store(NoTurn) }

// OnGoroutine says which goroutine the loop is.
func (p *Pulse) OnGoroutine(id uint64) { p.goroutine.Store(id) }

// Since returns when the turn that runs began, or NoTurn.
func (p *Pulse) Since() time.Duration { return time.Duration(p.since.Load()) }

// Begin says that a turn begins. Call Dog.Wake behind it.
func (p *Pulse) Begin(now time.Duration) { p.since.Store(int64(now)) }

// Seen reports whether the watchdog has seen the turn that began then: it should be measured.
func (p *Pulse) Seen(since time.Duration) bool { return p.looked.Load() == int64(since) }

// End says that the turn is over.
func (p *Pulse) End() { p.since.Store(NoTurn) }

// Long says, before End, that the turn took longer than it should.
func (p *Pulse) Long(since, took time.Duration) {
	p.longTook.Store(int64(took))
	p.longSince.Store(int64(since))
}

// Blocked returns how many turns were too long.
func (p *Pulse) Blocked() uint64 { return p.blocked.Load() }
