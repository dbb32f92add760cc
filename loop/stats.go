package loop

import (
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
)

// Stats are the counters of a Server. Counters start at 0 and only grow. Each is exact for the
// turns that have ended, but they are not read at a single instant.
type Stats struct {
	// LoopStats are the sums over all loops. For Lag, Turn, SocketWait and their maximums, they are
	// the largest values of any loop.
	LoopStats

	Accepted uint64 // connections that the listeners accepted
	Refused  uint64 // of Accepted and Sessions: above a limit, with an incomplete handshake, or refused by Accept
	Probes   uint64 // of Accepted: gone before the first byte of a TLS handshake or a PROXY header
	Closed   uint64 // connections whose OnClose has returned
	Cut      uint64 // of Closed: with output lost (see ErrOutputLost), or with work left when the drain ended (see ErrUnfinished)

	// ClosedBy counts ended connections by reason. It has all reasons, also those with 0:
	//
	//	handler         Conn.Close, Conn.Detach, an error of Send such as ErrClosed
	//	peer            io.EOF
	//	idle            ErrIdle
	//	slow_consumer   ErrSlowConsumer
	//	slow_frame      ErrSlowFrame
	//	drain           ErrServerClosed
	//	panic           *PanicError
	//	input           the codec or OnMessage rejected input
	//	network         a system error
	//	overload        ErrOffloadFull or ErrMailboxFull: this side is overloaded
	//	memory          ErrMaxBuffered
	//	moved           moved to another process: see package handover
	//	other           any other argument of CloseWithError
	ClosedBy map[string]uint64

	MovedIn uint64 // connections that came from another process, which are not Accepted

	// TLS handshakes, including those of dialed connections. A pending one has begun, by the first
	// whole record of the ClientHello: it computes, queues for a processor, or waits for its peer,
	// as at most Limits.MaxHandshakes do. A connection that Timeouts.Handshake closes before its
	// handshake has begun counts as failed, too.
	Handshakes, HandshakesFailed uint64
	HandshakesPending            int

	Sessions uint64 // UDP peers that sent a first datagram, including refused ones

	// Lost counts the datagrams that the system did not accept, that arrived while their session
	// was paused or after it was closed in the same turn, or whose new peers arrived faster than
	// sessions can be opened.
	Lost uint64

	Panics uint64 // recovered from callbacks

	Offloaded        int // jobs that are running
	OffloadedWaiting int // jobs that are waiting

	Loops []LoopStats // of each loop
}

// LoopStats are the statistics of one Loop.
type LoopStats struct {
	Conns    int    // connections that are open now, including those that are closing
	Messages uint64 // frames delivered to OnMessage
	BytesIn  uint64
	BytesOut uint64 // taken by the system
	Timers   int    // pending in the wheel
	Fired    uint64 // callbacks that the wheel ran, including the framework's own
	Mailbox  int    // functions queued, including those of the batch that is running
	HeldBack uint64 // times that a connection's input was held back because more than HoldBackAt bytes of output were pending
	Moved    uint64 // connections that have come to the loop by Conn.MoveTo
	Buffered int    // bytes of buffers that count against Server.Limits.MaxBuffered

	// Lag is how late callbacks started: timers and OnIdle hooks, measured from the millisecond in
	// which they were due, posts and tells, measured from when they were added to an empty mailbox.
	// A loop that keeps up has a Lag below a millisecond. Lag is the largest of the last 10 to 20
	// seconds, MaxLag the largest since the start.
	Lag, MaxLag time.Duration

	// Turn is the longest time, over the last 10 to 20 seconds, that the loop ran without polling
	// its sockets: with the input of one connection, or a batch of timers and posts. If one
	// callback takes long, this is its time. MaxTurn is the longest since the start; the turn that
	// is running counts with its time so far. Of turns for input that are shorter than 25 ms, or
	// than a quarter of Server.Debug.BlockedAfter if that is less, a random one in 16 is measured;
	// all others are. Time during which the process was stopped counts, here and in Lag.
	Turn, MaxTurn time.Duration

	// SocketWait is how long a ready socket waits before the loop serves it: for the turns ahead of
	// it, however short each of them is. While the loop has turns, the watchdog sends it a probe
	// every 25 ms, or every quarter of Server.Debug.BlockedAfter if that is shorter, and the probe
	// waits as a socket would. SocketWait is the longest of the last 10 to 20 seconds,
	// MaxSocketWait the longest since the start; a probe that is waiting counts with its time so
	// far.
	SocketWait, MaxSocketWait time.Duration

	Busy    time.Duration // all turns together, estimated from those measured; its growth per second is the load
	Blocked uint64        // turns that took longer than Server.Debug.BlockedAfter
}

// A counter is a number of a loop's that others may see.
type counter int

// The counters. The last ones are not counted, but looked at by publishCounters.
const (
	numMessages counter = iota
	numBytesIn
	numBytesOut
	numCut
	numRefused
	numPanics
	numSessions
	numLost
	numHeldBack
	numHops
	numMovedIn
	numFired
	numHandshakes
	numHandshakesFailed
	numHandshakesPending
	numConns
	numTimers
	numBuffered
	numClosedBy // and one for each further closeReason

	numCounters = numClosedBy + counter(numCloseReasons)
)

// counters are a loop's. Only the loop changes them, and any goroutine may load one.
type counters [numCounters]atomic.Uint64

// add costs less than an atomic addition, which one goroutine does not need.
func (c *counters) add(k counter, n int) { c[k].Store(c[k].Load() + uint64(n)) }

// load returns a copy.
func (c *counters) load() (n [numCounters]uint64) {
	for i := range c {
		n[i] = c[i].Load()
	}
	return n
}

// publishCounters publishes, at the end of a turn, what is not counted one by one.
func (l *Loop) publishCounters() {
	l.count[numMessages].Store(l.messages)
	if timers := uint64(l.wheel.Len()); timers != l.count[numTimers].Load() {
		l.count[numTimers].Store(timers)
	}
}

// publishHandshakes is publishCounters for a loop that has had TLS.
func (l *Loop) publishHandshakes() {
	l.count[numHandshakes].Store(l.tls.Counts.Done)
	l.count[numHandshakesFailed].Store(l.tls.Counts.Failed)
	l.count[numHandshakesPending].Store(l.tls.Counts.Pending)
}

// Stats returns the server's statistics. Any goroutine may call it, at any time.
func (s *Server) Stats() Stats {
	st := Stats{Accepted: s.accepted.Load(), Probes: s.probes.Load(), ClosedBy: make(map[string]uint64, numCloseReasons)}
	st.OffloadedWaiting, st.Offloaded = s.jobs.Counts()
	var sum [numCounters]uint64
	for _, l := range s.Loops() {
		n := l.count.load()
		for i := range n {
			sum[i] += n[i]
		}
		ls := LoopStats{Conns: int(n[numConns]), Messages: n[numMessages], BytesIn: n[numBytesIn], BytesOut: n[numBytesOut],
			Timers: int(n[numTimers]), Fired: n[numFired], Mailbox: l.mail.Waiting(), HeldBack: n[numHeldBack], Moved: n[numHops],
			Buffered: int(n[numBuffered])}
		l.showMeter(&ls)
		st.add(&ls)
		st.Loops = append(st.Loops, ls)
	}
	st.Refused = s.refused.Load() + sum[numRefused]
	st.Cut, st.Panics, st.MovedIn = sum[numCut], sum[numPanics], sum[numMovedIn]
	st.Sessions, st.Lost = sum[numSessions], sum[numLost]
	st.Handshakes, st.HandshakesFailed = sum[numHandshakes], sum[numHandshakesFailed]
	st.HandshakesPending = int(sum[numHandshakesPending])
	for i, n := range sum[numClosedBy:] {
		st.ClosedBy[closeReasons[i]] = n
		st.Closed += n
	}
	return st
}

// add adds the numbers of another loop.
func (s *LoopStats) add(l *LoopStats) {
	s.Conns, s.Timers, s.Mailbox, s.Buffered = s.Conns+l.Conns, s.Timers+l.Timers, s.Mailbox+l.Mailbox, s.Buffered+l.Buffered
	s.Messages, s.BytesIn, s.BytesOut = s.Messages+l.Messages, s.BytesIn+l.BytesIn, s.BytesOut+l.BytesOut
	s.Fired, s.HeldBack, s.Blocked, s.Busy = s.Fired+l.Fired, s.HeldBack+l.HeldBack, s.Blocked+l.Blocked, s.Busy+l.Busy
	s.Moved += l.Moved
	s.Lag, s.MaxLag = max(s.Lag, l.Lag), max(s.MaxLag, l.MaxLag)
	s.Turn, s.MaxTurn = max(s.Turn, l.Turn), max(s.MaxTurn, l.MaxTurn)
	s.SocketWait, s.MaxSocketWait = max(s.SocketWait, l.SocketWait), max(s.MaxSocketWait, l.MaxSocketWait)
}

// measure measures the turn that ends now, as one of so many like it.
func (l *Loop) measure(weight int) {
	l.meter.Measure(l.now, l.clock()-l.now, weight, l.whose)
}

// whose returns the ID of the connection whose code ran last, and the type of its handler.
func (l *Loop) whose() (id uint64, handler string) {
	if c := l.running.conn; c != nil {
		return c.id, c.handlerName()
	}
	return 0, ""
}

// noteLate notes how late the first of the timers runs that are due together. Until the end of the
// millisecond in which its deadline was, a timer is not late.
func (l *Loop) noteLate(deadline time.Duration) {
	due := (deadline + wheelTick - 1).Truncate(wheelTick)
	l.meter.NoteLate(max(0, l.advanced-due), l.advanced)
}

// showMeter adds what the loop's meter says to its numbers. A turn that is still running counts,
// too: it may be the longest.
func (l *Loop) showMeter(ls *LoopStats) {
	now := l.clock()
	r, running := l.meter.Read(now), l.meter.Running(now)
	ls.Lag, ls.MaxLag = max(r.Late.Recent(), r.Waited.Recent()), max(r.Late.Max, r.Waited.Max)
	ls.Turn, ls.MaxTurn = max(r.Turns.Recent(), running), max(r.Turns.Max, running)
	ls.SocketWait, ls.MaxSocketWait = max(r.Ready.Recent(), r.Unpolled), max(r.Ready.Max, r.Unpolled)
	ls.Busy, ls.Blocked = r.Turns.Sum+running, r.Blocked
}

// slowTurns is inside.ForMetrics.SlowTurns.
func (l *Loop) slowTurns() (slow []inside.SlowTurn) {
	for _, t := range l.meter.Read(l.clock()).Slow {
		slow = append(slow, inside.SlowTurn{Began: l.wallTime(t.Began), Took: t.Took, Conn: t.Conn, Handler: t.Handler, Work: t.Work.String()})
	}
	return slow
}
