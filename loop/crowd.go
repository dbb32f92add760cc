package loop

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// This file is what happens while more than Server.Limits.MaxMailbox functions wait for a loop.
// Connections whose callbacks add to them, or that are answered by them, are not read until half
// has run; TellWait waits; and the log says who adds most.

const (
	// crowdLogAfter is how long a mailbox is above its limit before the log says so, and
	// crowdLogEvery how often it does.
	crowdLogAfter, crowdLogEvery = time.Second, time.Minute

	// Of the functions above the limit one in crowdSample is looked at for the connection whose
	// callback has added it, and for its code, which takes tens of microseconds.
	crowdSample = 8

	maxProducers = 256 // places in the code that are counted
)

// A crowd is what a loop knows while its mailbox is above its limit.
type crowd struct {
	on    atomic.Bool   // since more than MaxMailbox wait, until half of that does
	began time.Duration // since, as the loop saw it last

	mu        sync.Mutex     // of all below; the loop's mailbox may be locked within
	held      []Ref          // connections that are not read
	free      chan struct{}  // closed when there is room; nil: nobody waits
	since     time.Duration  // when it began
	logged    time.Duration  // when the log last said so, or 0
	producers map[string]int // samples by place in the code
}

// loops are those that run, by the numbers of their goroutines.
var loops sync.Map

// runningLoop returns the loop whose goroutine calls, or nil. It takes some ten microseconds.
func runningLoop() *Loop {
	l, _ := loops.Load(goroutine.ID())
	running, _ := l.(*Loop)
	return running
}

// crowded is called on any goroutine that has put a function into a mailbox that is full.
func (l *Loop) crowded(number uint64, waiting int) {
	x := &l.crowd
	if number%crowdSample != 0 && x.on.Load() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if l.relieveLaterLocked() != nil { // the loop has ended
		return
	}
	if p := runningLoop(); p != nil && p.running.conn != nil && p.running.conn.isOpen() && p.running.conn.in.pauses&heldByMailbox == 0 {
		p.running.conn.pause(heldByMailbox)
		x.held = append(x.held, p.running.conn.Ref())
	}
	if place := producer(); x.producers[place] > 0 || len(x.producers) < maxProducers {
		x.producers[place]++
	}
	now := l.clock()
	if lasts := now - x.since; lasts >= crowdLogAfter && (x.logged == 0 || now-x.logged >= crowdLogEvery) {
		x.logged = now
		place := x.main()
		l.server.journal.Add(func() { // the caller may hold locks that the log's writer needs
			l.server.Logger.Warn().Int("mailbox", waiting).Int("max", l.server.Limits.MaxMailbox).Dur("for", lasts).Str("producer", place).
				Msg("the mailbox of a loop stays above MaxMailbox")
		})
	}
}

// answered is called on the loop after a Tell for c while the mailbox is above its limit. A c that
// keeps sending input may cause these Tells through other loops, so it is not read either.
func (x *crowd) answered(c *Conn) {
	if c.in.pauses&heldByMailbox != 0 || !c.isOpen() || c.idle.lastRead < x.began && !c.hasInput() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.on.Load() {
		c.pause(heldByMailbox)
		x.held = append(x.held, c.Ref())
	}
}

// noteBegin is called on the loop before it runs tasks.
func (x *crowd) noteBegin() {
	x.mu.Lock()
	x.began = x.since
	x.mu.Unlock()
}

// relieveLater makes sure that relieve is called when there is room, also if that is so by now.
func (l *Loop) relieveLater() {
	l.crowd.mu.Lock()
	_ = l.relieveLaterLocked() // or it has ended
	l.crowd.mu.Unlock()
}

// relieveLaterLocked is relieveLater, called with x.mu held. The error is ErrServerClosed.
func (l *Loop) relieveLaterLocked() error {
	x := &l.crowd
	if x.on.Load() {
		return nil
	}
	if _, _, err := l.mail.Put(task{f: l.relieve}); err != nil {
		return err
	}
	x.on.Store(true)
	x.since, x.producers = l.clock(), make(map[string]int)
	l.wake()
	return nil
}

// mailboxRoom returns a channel that is closed when there is room in the mailbox.
func (l *Loop) mailboxRoom() <-chan struct{} {
	x := &l.crowd
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.free == nil {
		x.free = make(chan struct{})
	}
	free := x.free
	if l.relieveLaterLocked() != nil { // the loop has ended
		close(x.free)
		x.free = nil
	}
	return free
}

// relieve ends the crowd if at most half of MaxMailbox functions wait. It is the loop's.
func (l *Loop) relieve() {
	x := &l.crowd
	x.mu.Lock()
	if l.mail.Waiting() > max(1, l.server.Limits.MaxMailbox/2) {
		x.mu.Unlock()
		return // and is called after each of the next batches
	}
	held := x.held
	if x.on.Store(false); x.free != nil {
		close(x.free)
	}
	x.held, x.free, x.producers = nil, nil, nil
	x.mu.Unlock()
	for _, r := range held {
		if l.isHere(r.c) {
			r.c.resume(heldByMailbox)
		} else {
			_ = r.Tell(func(c *Conn) { c.resume(heldByMailbox) }) // an error: it has closed
		}
	}
}

// main returns the place in the code that has added most.
func (x *crowd) main() (place string) {
	most := 0
	for p, n := range x.producers {
		if n > most {
			place, most = p, n
		}
	}
	return place
}

// producer returns the place in the code, outside of this module's loop and handler packages, that
// has put a function into a mailbox.
func producer() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs[:])])
	for {
		f, more := frames.Next()
		inside := strings.HasPrefix(f.Function, modulePath+"loop.") || strings.HasPrefix(f.Function, modulePath+"handler.")
		if !inside || !more {
			return fmt.Sprintf("%s (%s:%d)", f.Function, path.Base(f.File), f.Line)
		}
	}
}

const modulePath = "github.com/loopwheel/loopwheel/"
