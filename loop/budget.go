package loop

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/limits"
)

// This file limits what the buffers of a server take, all together: see Server.Limits.MaxBuffered.
// Each loop counts its own buffers as they are made and dropped, which is rare, and shows the sum
// at the end of its turn. The level follows from all loops' sums. A loop that has more than its
// part when the limit is reached closes those of its connections that hold most.

const (
	// connCost is about what an idle TCP connection takes: 3.7 KiB of Linux' memory, which a cgroup
	// counts, and a twentieth of that here, twice for the garbage collector and with the engine's
	// part.
	connCost = 5 << 10

	// sessionCost is about what a UDP session with a small handler takes, in the process alone.
	sessionCost = 1 << 10

	maxDefaultSessions = 128 << 10

	// A part of the memory limit for all buffers, one for all connections, and one for all UDP
	// sessions. The collector may let the heap grow to twice of what is in use.
	bufferedPart, connsPart, sessionsPart = 8, 4, 8

	// kernelPart of a limit below smallMemory is what SendBuffer and ReceiveBuffer are by default:
	// a cgroup counts the kernel's buffers of sockets, which may take megabytes each.
	kernelPart, smallMemory = 4096, 1 << 30

	// guessPart is how much of the physical memory is for this process if nobody has set a limit.
	guessPart = 4

	// shedWalk is how many connections a loop looks at in a turn, to find those that hold most.
	shedWalk = 4096
)

// The levels of a budget.
const (
	levelLow  = iota // less than half of the limit is used
	levelHalf        // HoldBackAt and what is read at once shrink
	levelHigh        // three quarters: HoldBackAt shrinks further
	levelOver        // connections are closed
)

// A budget is what all loops of a server share.
type budget struct {
	limit int64        // Server.Limits.MaxBuffered
	used  atomic.Int64 // as of the ends of their turns
	level atomic.Int32
}

// add notes that the buffers of a loop have n bytes more, and reports whether the level has changed.
func (b *budget) add(n int64) (changed bool) {
	b.used.Add(n)
	for level := b.decide(); b.level.Swap(level) != level; changed = true {
		level = b.decide() // other loops may have changed it meanwhile
	}
	return changed
}

// decide returns the level that follows from what is used.
func (b *budget) decide() int32 {
	switch used, limit := b.used.Load(), b.limit; {
	case used < limit/2:
		return levelLow
	case used < limit/4*3:
		return levelHalf
	case used < limit:
		return levelHigh
	}
	return levelOver
}

// limitMemory fills in what follows from the memory that the process may use.
func (s *Server) limitMemory(capacity int) {
	memory, set := limits.Memory()
	ours := memory
	if !set {
		ours /= guessPart
	}
	if s.Limits.MaxBuffered == 0 {
		s.Limits.MaxBuffered = max(1, int(ours/bufferedPart))
	}
	s.budget.limit = int64(s.Limits.MaxBuffered)
	if s.Limits.MaxConns == 0 {
		s.Limits.MaxConns = min(capacity, maxDefaultConns, max(1, int(memory/connsPart/connCost)))
	}
	if s.Limits.MaxSessions == 0 {
		s.Limits.MaxSessions = min(maxDefaultSessions, max(1, int(memory/sessionsPart/sessionCost)))
	}
	for _, ln := range s.listeners {
		if set && memory < smallMemory && !ln.foreign && !ln.isUDP() {
			ln.tcp.SendBuffer = cmp.Or(ln.tcp.SendBuffer, int(memory/kernelPart))
			ln.tcp.ReceiveBuffer = cmp.Or(ln.tcp.ReceiveBuffer, int(memory/kernelPart))
		}
	}
	conns, buffered, sessions := s.Limits.MaxConns, s.Limits.MaxBuffered, 0
	if slices.ContainsFunc(s.listeners, (*listener).isUDP) {
		sessions = s.Limits.MaxSessions
	}
	if need := int64(conns)*connCost + 2*int64(buffered) + int64(sessions)*sessionCost; need > memory {
		s.journal.Add(func() {
			s.Logger.Warn().Int("MaxConns", conns).Int("MaxBuffered", buffered).Int("MaxSessions", sessions).Int64("memory", memory).Int64("needed", need).
				Msg("the memory limit is too low for Server.Limits.MaxConns, MaxBuffered and MaxSessions")
		})
	}
}

// account notes that the loop's buffers, or the level, have changed.
func (l *Loop) account() {
	b := &l.server.budget
	l.pooled = l.store.Pool.Size()
	if now := l.pooled + l.mailed; now != l.buffered {
		n := now - l.buffered
		l.buffered = now
		l.count[numBuffered].Store(uint64(max(0, now)))
		if b.add(int64(n)) {
			for _, l := range l.server.loops {
				l.duties.Or(dutyLevel)
			}
		}
	}
	if level := b.level.Load(); level != l.level {
		l.level = level
		l.inputSlice = inputSlice >> level
		l.holdBackAt = max(1, l.server.Limits.HoldBackAt>>(2*level))
		l.store.Pool.SetMax(l.poolMax() >> (2 * level))
	}
	if l.level == levelOver && !l.shed.waits {
		l.shed.waits = true
		l.runSoon((*shedding)(l))
	}
}

// poolMax returns how many bytes of buffers that are not in use a loop keeps.
func (l *Loop) poolMax() int { return int(l.memoryShare()) / 8 }

// memoryShare returns the part of the limit that each loop may have if all have as much.
func (l *Loop) memoryShare() int64 { return l.server.budget.limit / int64(l.server.NumLoops) }

// excess returns how many bytes the loop is to give back now.
func (l *Loop) excess() int64 {
	b := &l.server.budget
	size := l.store.Pool.Size()
	all := b.used.Load() + int64(size+l.mailed-l.buffered) // with what account has not seen
	return min(all-b.limit/8*7, int64(size)-l.memoryShare()/8*7)
}

// A shed is the search for connections that hold most. It passes through the loop's list again and
// again, as long as there is excess. Each pass counts how much is held in buffers of each size,
// from which follows what the next pass closes.
type shed struct {
	waits bool // it is in the run queue
	next  int  // in Loop.conns
	held  [bits.UintSize + 1]int64
	least int // what holds as much is closed; 0: the first pass
}

// shedding makes a Loop a runnable that goes on with its shed.
type shedding Loop

// Run closes the connections that hold most, as far as this piece of the list has them. Before, it
// writes what they hold for want of time only.
func (w *shedding) Run() {
	l := (*Loop)(w)
	l.settleTouched(never)
	s := &l.shed
	for range shedWalk {
		excess := l.excess()
		if excess <= 0 || s.next >= len(l.conns) && !s.nextPass(excess) {
			*s = shed{}
			return
		}
		c := l.conns[s.next]
		s.next++
		held := c.bufferBytes()
		if s.held[bits.Len(uint(held))] += int64(held); s.least > 0 && held >= s.least {
			c.closeForMemory()
		}
	}
	l.runSoon(w)
}

// nextPass prepares the next pass. False: no connection holds anything.
func (s *shed) nextPass(excess int64) bool {
	size, sum := 0, int64(0)
	for i := len(s.held) - 1; i > 0 && sum < excess; i-- {
		if s.held[i] > 0 {
			size = i
		}
		sum += s.held[i]
	}
	if *s = (shed{waits: true}); size == 0 {
		return false
	}
	s.least = 1 << (size - 1)
	return true
}

// keepsTooMuch closes c, which has just received something, if it keeps more than twice what each
// connection of its loop could. That is for a loop whose budget is used up, which must not wait for
// its shed while more comes.
func (c *Conn) keepsTooMuch() {
	if l := c.loop; int64(c.in.decoder.Cap()+c.held()) > 2*l.memoryShare()/int64(max(1, len(l.conns))) && l.excess() > 0 {
		c.closeForMemory()
	}
}

// countParts has what the codec of c holds of unfinished messages count as a buffer.
func (c *Conn) countParts(size int) {
	if before := c.parts(); size != before {
		c.idleExtras().parts = size
		c.loop.store.Pool.Carry(size - before)
	}
}

// parts returns what countParts has counted.
func (c *Conn) parts() int {
	if w := c.idle.extras; w != nil {
		return w.parts
	}
	return 0
}

// countHeld has n bytes more count as buffers of c, or n fewer, which package handler or the codec
// hold for it. They are forgotten when the close begins.
func (c *Conn) countHeld(n int) {
	if n != 0 && !c.isClosing() {
		c.more().held += n
		c.loop.store.Pool.Carry(n)
	}
}

// countKept counts n bytes more that the codec keeps until its handshake is done.
func (c *Conn) countKept(n int) {
	if o, ok := c.in.decoder.Codec().(codec.Opener); ok && o.Opening() != nil && !c.isClosing() {
		c.countHeld(n)
		c.more().kept += n
	}
}

// keptIsSent looks whether the codec's handshake is done, so that it keeps nothing more.
func (c *Conn) keptIsSent() {
	if c.extras == nil || c.extras.kept == 0 {
		return
	}
	if o, ok := c.in.decoder.Codec().(codec.Opener); !ok || o.Opening() == nil {
		c.forgetKept()
	}
}

func (c *Conn) forgetKept() {
	if x := c.extras; x != nil && x.kept > 0 {
		c.countHeld(-x.kept)
		x.kept = 0
	}
}

// forgetHeld is for the beginning of the close.
func (c *Conn) forgetHeld() {
	c.countParts(0)
	if x := c.extras; x != nil && x.held > 0 {
		c.loop.store.Pool.Carry(-x.held)
		x.held, x.kept = 0, 0
	}
}

// held returns what countParts and countHeld have counted.
func (c *Conn) held() int {
	n := c.parts()
	if c.extras != nil {
		n += c.extras.held
	}
	return n
}

// closeForMemory closes c and gives back its buffers now.
func (c *Conn) closeForMemory() {
	c.abort(ErrMaxBuffered)
	c.releaseOutput()
	c.in.pauses &^= heldBack
	c.touch() // also if it was closing
}

// bufferBytes returns how many bytes the buffers of c have.
func (c *Conn) bufferBytes() int {
	n := c.plainBufferBytes()
	if t := c.tlsLayer(); t != nil {
		n += t.Held()
	}
	return n
}

// plainBufferBytes is bufferBytes without those of the layer of TLS.
func (c *Conn) plainBufferBytes() int {
	n := c.in.decoder.Cap() + c.held()
	if b := c.out.box; b != nil {
		n += b.Cap()
	}
	return n
}
