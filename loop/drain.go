package loop

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// This file is the server's end: the drain of its connections, and the end of its loops.

const (
	// lookForConns is how often Drain.Delay looks whether there are connections left.
	lookForConns = 10 * time.Millisecond

	// stuckTimeout is how long a loop may take, at the end of the drain, to answer at all.
	stuckTimeout = 5 * time.Second

	// drainLastPart: so large a part of Drain.Timeout, a tenth, is left to the connections that the
	// drain closes last.
	drainLastPart = 10
)

// supervise waits for the end and carries it out.
func (s *Server) supervise(ctx context.Context) {
	defer close(s.done)
	defer s.journal.Wait()
	defer s.cancel()
	defer s.hurryUp()
	defer s.watchdog.Stop()
	failure := s.serveUntil(ctx)
	s.stopAccepting()
	cut, stuck := s.drain()
	s.stopJobs()
	select {
	case err := <-s.failed: // meanwhile
		failure = errors.Join(failure, s.loopFailed(err))
	default:
	}
	if stuck != nil {
		s.err = errors.Join(failure, stuck)
		go func() { // if the callback that was stuck returns after all
			_ = waitFor(context.Background(), s.ended()...)
			_ = s.stopEngine()
		}()
		return
	}
	s.err = errors.Join(failure, s.stopEngine())
	if s.err == nil && cut > 0 {
		s.err = &DrainError{Cut: cut}
	}
}

// serveUntil waits for the end of ctx and of Drain.Delay, or returns early with why a loop failed.
func (s *Server) serveUntil(ctx context.Context) error {
	select {
	case <-ctx.Done():
	case <-s.hurry.Done():
		return nil
	case err := <-s.failed:
		return s.loopFailed(err)
	}
	if s.Drain.Delay == 0 {
		return nil
	}
	s.phase.Store(phaseEnding)
	if !s.Drain.KeepAccepting {
		s.stopAccepting()
	}
	over, look := time.After(s.Drain.Delay), time.NewTicker(lookForConns)
	defer look.Stop()
	for {
		select {
		case <-over:
			return nil
		case <-s.hurry.Done():
			return nil
		case <-look.C:
			select {
			case <-s.notAccepting:
				if s.listening.Load() == 0 && s.numOpen.Load()+s.sessions.Load() == 0 {
					return nil // nobody is left, and nobody comes
				}
			default: // KeepAccepting, and no other process has taken over
			}
		case err := <-s.failed:
			return s.loopFailed(err)
		}
	}
}

// stopAccepting may be called again, by several goroutines at a time. It returns when the listeners
// are closed.
func (s *Server) stopAccepting() {
	s.phase.Store(phaseEnding)
	s.stopsAccepting.Do(func() {
		close(s.notAccepting)
		s.closeListeners()
	})
}

// Draining reports whether the server is shutting down: from when Start's context is done,
// Drain.Delay included. A health check should then fail. Any goroutine may call it.
func (s *Server) Draining() bool { return s.has(phaseEnding) }

// loopFailed logs why a loop has ended unasked, and returns it.
func (s *Server) loopFailed(err error) error {
	s.journal.Add(func() { s.Logger.Error().Err(err).Msg("an event loop has ended: the server drains") })
	return err
}

// drain closes all connections and runs OnStop on each loop. It returns how many had to be cut, or
// an error if a loop does not answer.
func (s *Server) drain() (cut int, stuck error) {
	before := s.Stats().Cut
	var served, drained []<-chan struct{}
	for _, l := range s.loops {
		served, drained = append(served, l.served), append(drained, l.drained)
	}
	s.noHops.Store(true) // before a loop looks which connections it has
	s.tellLoops((*Loop).beginDrain)
	patience, cancel := context.WithTimeout(s.hurry, s.Drain.Timeout)
	defer cancel()
	early, cancelEarly := context.WithTimeout(patience, s.Drain.Timeout-s.Drain.Timeout/drainLastPart)
	defer cancelEarly()
	_ = waitFor(early, served...)
	s.tellLoops((*Loop).drainLast)
	if waitFor(patience, drained...) != nil {
		// Each loop cuts what is still open before its mailbox: that may take as long
		// as it likes, and is soon done when nobody is left whom it is for.
		for _, l := range s.loops {
			l.overdue.Store(true)
		}
		s.tellLoops((*Loop).cutIfOverdue) // a turn that takes this has begun before overdue was set, perhaps
		waitForUpTo(stuckTimeout, drained...)
	}
	s.tellLoops(func(l *Loop) { l.mayStop = true })
	if !waitForUpTo(stuckTimeout, s.ended()...) {
		return 0, errors.New("loop: a callback does not return, or too many functions are queued; still running: " + s.notEnded())
	}
	return int(s.Stats().Cut - before), nil
}

// stopJobs is the last step of the server's end.
func (s *Server) stopJobs() {
	if n := s.jobs.Stop(jobsTimeout); n > 0 {
		s.journal.Add(func() {
			s.Logger.Warn().Int("jobs", n).
				Msg("offloaded jobs do not return, though their connections are closed: their goroutines are left behind")
		})
	}
}

// stopEngine ends the engine, whose loops have ended.
func (s *Server) stopEngine() error { return errors.Join(s.waitForNewcomers(), s.engine.Stop()) }

// waitForNewcomers waits, though not for ever, until no goroutine accepts or dials any more. What
// such a goroutine may hang in is a function of the user's.
func (s *Server) waitForNewcomers() error {
	gone := make(chan struct{})
	go func() {
		s.newcomers.Wait()
		close(gone)
	}()
	if waitForUpTo(stuckTimeout, gone) {
		return nil
	}
	return fmt.Errorf("loop: goroutines do not end and are left behind: %d that dial (a Dialer.Control that blocks?), %d that accept (an AcceptFrom whose Accept goes on after Close?)",
		s.dials.Load(), s.listening.Load())
}

// tellLoops calls f on each loop that has not ended.
func (s *Server) tellLoops(f func(l *Loop)) {
	for _, l := range s.loops {
		_ = l.Post(func() { f(l) }) // an error: l has ended
	}
}

// ended returns what is closed when each loop has ended.
func (s *Server) ended() (all []<-chan struct{}) {
	for _, l := range s.loops {
		all = append(all, l.ended)
	}
	return all
}

// waitForUpTo reports whether all is done in time.
func waitForUpTo(d time.Duration, all ...<-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return waitFor(ctx, all...) == nil
}

// waitFor waits until all is done, or returns the error of ctx. It does not look at that before.
func waitFor(ctx context.Context, all ...<-chan struct{}) error {
	for _, done := range all {
		select {
		case <-done:
			continue
		default:
		}
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *Server) notEnded() string {
	var which []string
	for _, l := range s.loops {
		select {
		case <-l.ended:
		default:
			which = append(which, fmt.Sprintf("loop %d (connections: %d, queued functions: %d)", l.index, l.load.Load(), l.mail.Len()))
		}
	}
	return strings.Join(which, ", ")
}

// Shutdown ends the server, as when Start's context is done, and waits until no callback and no job
// of the program runs any more: on the loops, as Wait does, and also jobs of Offload that ignore
// their context, which Wait abandons after 5 s. Hooks of a tls.Config and a Dialer.Control may still
// run. Shutdown returns what Wait returns, or ctx's error if that is done first. The server then
// continues to end, and Shutdown may be called again. Any number of goroutines may call it, after
// Start. On a loop it does nothing and returns an error, like Wait.
func (s *Server) Shutdown(ctx context.Context) error {
	if !s.has(phaseServing) {
		return errors.New("loop: Server.Shutdown needs a Server that was started")
	}
	if s.onLoop() {
		return errors.New("loop: Server.Shutdown was called on a loop, which would wait for itself: call it on a goroutine")
	}
	s.cancel()
	if err := waitFor(ctx, s.done); err != nil {
		return err
	}
	if err := waitFor(ctx, append(s.ended(), s.jobs.Done())...); err != nil {
		return err
	}
	return s.err
}

// Close ends the server at once, without Drain.Delay and Drain.Window, and cuts connections whose
// peers do not take their output immediately, or that have work left. OnClose gets ErrServerClosed,
// and for those ErrOutputLost or ErrUnfinished in addition. Close does not block. Wait returns when
// the loops have run their mailboxes and OnStop, and jobs of Offload have returned; for these it
// waits at most 5 s. Any goroutine may call it, including a loop's, also during a drain; before
// Start it returns an error.
func (s *Server) Close() error {
	if !s.has(phaseServing) {
		return errors.New("loop: Server.Close needs a Server that was started")
	}
	s.hurryUp()
	return nil
}

// onLoop reports whether the calling goroutine is that of a loop. It is too slow for what happens
// often.
func (s *Server) onLoop() bool {
	id := goroutine.ID()
	return slices.ContainsFunc(s.loops, func(l *Loop) bool { return l.meter.IsOn(id) })
}

// beginDrain closes the connections of a loop, in random order, at even times of Drain.Window.
// Those of Links are served until the others have closed, on all loops: their requests may need
// them.
func (l *Loop) beginDrain() {
	if l.draining { // it was overdue, and has been cut
		return
	}
	l.refuseAll(ErrServerClosed)
	conns := slices.DeleteFunc(slices.Clone(l.conns), (*Conn).drainsLast)
	rand.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	for i, c := range conns {
		share := float64(i) / float64(len(conns))
		l.wheel.At(l.fromNow(time.Duration(share*float64(l.server.Drain.Window))), func() {
			c.callOnDrain()
			c.closeWhenDone()
		})
	}
}

// drainLast closes the connections that beginDrain has left out.
func (l *Loop) drainLast() {
	for _, c := range slices.Clone(l.conns) {
		if c.drainsLast() && c.at() == stateOpen {
			c.callOnDrain()
			c.closeWhenDone()
		}
	}
}

func (c *Conn) drainsLast() bool { return c.extras != nil && c.extras.pinned == pinnedLast }

// refuseAll refuses what is on its way, and what opens from now on.
func (l *Loop) refuseAll(reason error) {
	l.draining = true
	l.duties.Or(dutyChecks)
	for _, a := range l.arrivals {
		a.abort(reason)
	}
	l.endDials(reason)
}

// SetBusy marks c as busy, or as no longer busy. A connection is busy while it has unfinished work,
// such as a request in progress or a partial upload. The drain keeps a busy connection open, and
// serves it, until it is no longer busy, closes, or Server.Drain.Timeout is over: see
// ErrUnfinished. Server.Hooks.OnDrain is called for it in its turn, as for all connections, so that
// it can tell the peer that this is the last request. When a draining connection is no longer busy,
// it closes after the current callback, which may still send, or set it busy again.
func (c *Conn) SetBusy(busy bool) {
	c.loop.owner.Check("Conn.SetBusy")
	if busy == c.isBusy() {
		return
	}
	c.more().busy = busy
	if c.at() == stateDraining {
		c.touch()
	}
}

func (c *Conn) isBusy() bool {
	n, ok := c.handler.(*netConn)
	return ok && n.isBusy() || c.extras != nil && c.extras.busy
}

func (c *Conn) callOnDrain() {
	if f := c.loop.server.Hooks.OnDrain; f != nil && c.isOpen() && !c.isNet() && !c.isInPipe() {
		c.callHook(func() { f(c) })
	}
}

// closeWhenDone closes c, at once or when it is not busy any more, its jobs are done, and no answer
// is due. A busy connection is still read, and so is one that waits for its peer's answer. With
// jobs, runThens resumes it when few are left.
func (c *Conn) closeWhenDone() {
	if c.hops() {
		c.extras.hop.lead.stay(nil) // it drains on this loop
	}
	if !c.isOpen() || !c.isAtWork() { // nothing, if it is closing
		c.beginClose(ErrServerClosed)
		return
	}
	switch {
	case !c.hasBusiness():
		c.pause(heldByAnswers)
	case !c.hasJobs():
		c.resume(heldByAnswers)
	}
	if c.at() == stateOpen {
		c.setState(stateDraining)
		c.touch() // SetBusy of a net.Conn may have come just before
	}
}

// cutIfOverdue runs before the mailbox, and in it.
func (l *Loop) cutIfOverdue() {
	if l.overdue.Load() && l.overdue.Swap(false) {
		l.cutOverdue()
	}
}

// cutOverdue is the end of the drain's time: it ends what is still flushing. Without a turn for
// the mailbox the drain has not even begun.
func (l *Loop) cutOverdue() {
	begun := l.draining
	l.cuts = true
	if !begun {
		l.refuseAll(ErrServerClosed)
	}
	for _, c := range slices.Clone(l.conns) {
		if !begun || c.drainsLast() && c.at() == stateOpen {
			c.callOnDrain()
		}
		c.beginClose(ErrServerClosed)
		c.goOnClosing(true) // which tries once more: a loop that was late may not have done it yet
	}
	l.endLingering()
}

func (l *Loop) endLingering() {
	for c := range l.lingering {
		c.endLinger(false)
	}
}

// noteDrained ends the loop's part of the drain once it has no connection left, and the first step
// of it when only those are left that are closed last.
func (l *Loop) noteDrained() {
	if !l.draining || l.incoming.Load() != 0 {
		return
	}
	if !l.onlyLast && !slices.ContainsFunc(l.conns, func(c *Conn) bool { return !c.drainsLast() }) {
		l.onlyLast = true
		close(l.served)
	}
	if len(l.conns)+len(l.lingering) == 0 {
		l.drainedOnce.Do(func() { close(l.drained) })
	}
}

// stop empties the mailbox and runs OnStop.
func (l *Loop) stop() {
	select {
	case <-l.ended:
		return
	default:
	}
	_ = l.guard(l.stopGuarded) // which tries what panics; a Goexit is left
}

func (l *Loop) stopGuarded() {
	l.cuts = true
	l.mail.Close()
	for l.slice = sliceOf(l.now, never); l.mail.Len() > 0; {
		l.runMail()
	}
	l.settleTouched(never)
	l.running.conn = nil
	if l.started && l.server.OnStop != nil {
		l.started = false // once
		_ = l.guard(func() { l.server.OnStop(l) })
	}
	for len(l.afterStop) > 0 {
		f := l.afterStop[0]
		l.afterStop = l.afterStop[1:]
		_ = l.guard(f)
	}
	l.closePorts()
	l.crossBatches()
	l.relieve()
	loops.Delete(l.goroutine)
	l.account()
	l.publishCounters()
	if l.tls != nil {
		l.publishHandshakes()
	}
	l.noteDrained()
	l.meter.Over()
	close(l.ended)
}

// broke ends a loop whose engine has ended unasked.
func (l *Loop) broke(err error) {
	l.enter()
	l.refuseAll(err)
	for _, c := range slices.Clone(l.conns) {
		c.abort(err)
	}
	l.endLingering()
	l.settleTouched(never)
	l.noteDrained()
	l.stop()
	l.leaveRequested()
}

// drainState is a loop's part in the drain.
type drainState struct {
	draining    bool
	cuts        bool // what arrives by MoveTo is cut
	mayStop     bool
	overdue     atomic.Bool   // cutOverdue is to be called
	onlyLast    bool          // served is closed
	served      chan struct{} // closed when draining and without connections but those closed last
	drainedOnce sync.Once
	drained     chan struct{} // closed when draining and without connections
	ended       chan struct{} // closed after OnStop
}

// owesAnswer reports whether the peer is owed an answer: a job's, or a reply.
func (c *Conn) owesAnswer() bool { return c.out.owed > 0 || c.hasJobs() }

// hasBusiness reports whether c has business that may need its input: SetBusy, or calls.
func (c *Conn) hasBusiness() bool { return c.out.awaited > 0 || c.isBusy() }

// isAtWork reports whether c has something to finish, for which a drain waits.
func (c *Conn) isAtWork() bool { return c.hasBusiness() || c.owesAnswer() }

// inputWaits reports whether input waits that is delivered soon: in the socket, for its turn, or
// behind the message that is being delivered.
func (c *Conn) inputWaits() bool {
	switch {
	case !c.isOpen() || c.in.pauses&^inRunQueue != 0:
		return false
	case c.in.pauses == inRunQueue:
		return c.in.decoder.Buffered() > 0
	case c.loop.running.decoding == c.id && len(c.loop.running.rest) > 0:
		return true
	default:
		return c.hasUnread()
	}
}
