package loop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/framing"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// This file is the input of a connection. Bytes that the engine reads are decoded at once. When
// reading is paused, or the connection has had its share of the loop, the rest is kept:
//
//	received ──▶ decode ──▶ OnMessage
//	   │          │  ▲
//	   │ paused   │  │ Run, from the run queue: after the last pause, or for the next share
//	   ▼          ▼  │
//	     what is kept       (the socket is not read if that is much)

// input is what a connection receives, and how far that has got.
type input struct {
	decoder      framing.Decoder
	prefixLimit  int32  // messages shorter than this follow a length of 4 bytes, and need no codec; see Decoder.PrefixLimit
	pauses       pauses // why nothing is decoded, if so
	socketPaused bool   // Socket.Pause was called
	end          inputEnd
}

// pauses are the reasons why a connection's input is not decoded. Each has its own end.
type pauses uint16

const (
	pausedByUser  pauses = 1 << iota // PauseRead
	heldByLayer                      // holdRead
	heldByPipe                       // the other side of its pipe, or the reader of its net.Conn, does not take what comes
	heldBack                         // more than HoldBackAt of its output waits
	heldByAnswers                    // many jobs wait; or the server drains, and some do, or replies are owed
	heldByCodec                      // the codec waits for a job of its own: codec.Peer.Await
	heldByMailbox                    // it has filled the mailbox of a loop: see Server.Limits.MaxMailbox
	startingTLS                      // StartTLS: what comes is the handshake's
	hopping                          // MoveTo, until all earlier Tells have arrived
	heldToMove                       // it is to come to rest, so that it can move to another process
	frozenToMove                     // it is on its way there: extras.frozen
	inRunQueue                       // it is in loop.runQueue

	// heldUnread are reasons that may last, with input in the socket that is to be read after them.
	heldUnread = pausedByUser | heldByPipe | heldByLayer

	// comeFirst are reasons for which the end of the input waits, although no input does.
	comeFirst = heldUnread | hopping
)

// received is a turn, or part of one: it decodes input, and settles c.
func (c *Conn) received(p []byte) {
	l := c.loop
	l.enter()
	c.idle.lastRead = l.now
	l.count.add(numBytesIn, len(p))
	if c.isOpen() {
		c.out.todo |= settleDue // it is settled here: to list it would cost a message 4 % more
		switch {
		case c.in.pauses != 0:
			c.hold(p)
		case c.isPiped() && c.in.decoder.Buffered() == 0:
			c.extras.pipe.pass(p)
		default:
			c.decode(p, l.now, l.now+l.inputSlice)
		}
		if l.level == levelOver {
			c.keepsTooMuch()
		}
		if l.touched.len() < mergeFrom {
			c.settle()
		} else {
			c.settleAmongOthers()
		}
	} else if c.at() == stateFlushing {
		c.countDiscarded(len(p))
	}
	l.leave()
}

// room returns how much more than a buffer one read may bring. A piece is short, as the connection
// may be held back while it has it. Long frames come whole, as parts of one are copied: so many
// that their echoes, without that of the last one, stay below HoldBackAt. p is what the buffer has;
// nil with TLS.
func (c *Conn) room(p []byte) int {
	l := c.loop
	if l.level != levelLow || c.in.pauses != 0 || !c.isOpen() {
		return 0
	}
	size, here := c.in.decoder.FrameSize(p)
	switch {
	case c.isPiped():
		return l.holdBackAt - len(p)
	case size < longFrame:
		return maxPiece - len(p)
	}
	return max(1, (l.holdBackAt-c.pending()+size-1)/size)*size - here
}

const (
	// A connection whose messages are short has its first look at the clock after maxPace of them.
	// A long message counts for one more with each longMessage bytes.
	maxPace     = 8
	longMessage = 1 << 10

	// keptOpen is how much input that waits to be decoded leaves the socket open for more, and
	// maxPiece is how much one read takes, unless frames have longFrame bytes and more.
	keptOpen  = 16 << 10
	maxPiece  = 48 << 10
	longFrame = 4 << 10

	// maxHeld is how much input a paused connection takes from a socket that cannot be paused.
	maxHeld = 1 << 20
)

// decode delivers the messages in data, which follows what was kept before, from now until end. The
// rest goes to the run queue. A panic closes c.
func (c *Conn) decode(data []byte, now, end time.Duration) {
	returned := false
	defer func() { // not by Loop.guard, which would cost a message 3 % more
		if !returned {
			c.decodePanicked(c.loop.caught(recover()))
		}
	}()
	c.decodeUntil(data, now, end)
	returned = true
}

// decodePanicked closes c because of a panic, if it is one.
func (c *Conn) decodePanicked(err error) {
	if err != nil {
		c.loop.running.decoding, c.loop.running.rest = 0, nil
		c.endAmidAnswer(err)
		c.giveUpInput()
	}
}

// decodeUntil is decode, guarded.
func (c *Conn) decodeUntil(data []byte, now, end time.Duration) {
	l, hasData := c.loop, len(data) > 0
	untilLook := max(1, int(c.pace)) // a fast neighbour says nothing of how long c's messages take
	s := slice{end: end, seen: now, next: untilLook}
	l.noteRunning(c, meter.Message)
	l.running.decoding = c.id
	before := l.messages
	for {
		if c.pending() > l.holdBackAt {
			c.holdBack()
		}
		if c.in.pauses != 0 {
			if c.in.decoder.Keep(data); len(data) > keptOpen {
				c.stopReading()
			}
			break
		}
		var msg []byte
		var more bool
		if n := c.prefixedFrame(data); n != 0 {
			data, msg = data[n:], data[prefix:n:n]
		} else if data, msg, more = c.next(data); !more {
			break
		}
		if msg != nil {
			l.messages++
			l.running.rest = data
			if err := c.deliver(msg); err != nil {
				c.refuseMessage(err)
			}
		}
		if len(data) == 0 && c.in.decoder.DecodesInPlace() {
			break
		}
		if !c.isOpen() {
			if c.tlsStart() != nil { // the beginning of a handshake that is still to come
				c.in.decoder.Keep(data)
			}
			break
		}
		if untilLook -= 1 + int(uint(len(msg))/longMessage); untilLook <= 0 { // not s.over: a long one counts for several
			if s.look(l) {
				c.decodeSoon() // a pause: the next round keeps the rest, and breaks
			}
			untilLook = s.left
			c.pace = uint8(min(untilLook, maxPace))
		}
	}
	if c.codecMode != framesOnly && c.isOpen() {
		size, _ := c.unfinished()
		c.countParts(size)
		c.keptIsSent()
	}
	if l.server.Timeouts.Frame > 0 && c.isOpen() {
		// With data, a partial record is fresh input: link.readable calls watchRecord next, which
		// looks at it.
		c.watchFrame(c.hasUnfinished() || !hasData && c.hasPartialRecord(), l.messages != before)
	}
	if l.running.decoding, l.running.rest = 0, nil; !c.isOpen() {
		c.giveUpInput()
	}
}

// prefix is the size of the length before a message that needs no codec.
const prefix = 4

// prefixedFrame returns the length of the first frame in data, if it is whole and its codec need
// not be asked for it; 0 if it must be.
func (c *Conn) prefixedFrame(data []byte) int {
	if len(data) < prefix || !c.in.decoder.DecodesInPlace() {
		return 0
	}
	n := binary.BigEndian.Uint32(data)
	if int64(n) >= int64(c.in.prefixLimit) || int(n) > len(data)-prefix {
		return 0
	}
	return int(n) + prefix
}

// next has the decoder look for the next frame. more: there is one, or the decoder is to be asked
// again.
func (c *Conn) next(data []byte) (rest, msg []byte, more bool) {
	rest, msg, more, err := c.in.decoder.Next(data)
	if c.codecMode != framesOnly {
		c.loop.running.rest = rest // a Dialer's open function may call Detach or NetConn
		if c.sendReply(err == nil && msg == nil); c.codecMode == dialHandshake && err == nil {
			c.lookAtHandshake()
		}
	}
	switch {
	case !c.isOpen():
	case err != nil:
		c.undecodable(err)
	case more || msg != nil:
		return rest, msg, true
	case c.in.decoder.Buffered() > c.loop.server.Limits.MaxFrame && c.in.pauses&heldByCodec == 0:
		c.limitFrame()
	}
	return nil, nil, false
}

// limitFrame closes c if its codec waits for the end of a frame that is too long: see
// Server.Limits.MaxFrame.
func (c *Conn) limitFrame() {
	limit := c.loop.server.Limits.MaxFrame
	if s, ok := c.in.decoder.Codec().(codec.Sizer); ok {
		if size, _ := s.FrameSize(nil); size > 0 {
			limit = size
		}
	}
	if n := c.in.decoder.Buffered(); n > limit {
		c.undecodable(fmt.Errorf("%w: %d bytes without an end, limit %d", codec.ErrTooLong, n, limit))
	}
}

// undecodable closes c because the codec does not understand the peer.
func (c *Conn) undecodable(err error) {
	if errors.Is(err, codec.ErrEnd) {
		c.beginClose(err)
		return
	}
	c.refuseInput(err, "the input cannot be decoded")
}

// refuseMessage closes c because OnMessage returned err: as it finds fault with what the peer sent,
// or with something that is no fault of the peer's, such as an error of Send.
func (c *Conn) refuseMessage(err error) {
	if c.isClosing() { // OnMessage returned the error of a Send after Close, say
		return
	}
	switch c.reasonFor(err) {
	case closedByOther, closedByInput, closedByPeer, closedByNetwork: // the error may be a parser's, io.EOF too
		c.refuseInput(err, "a message was refused")
	case closedByOverload:
		c.beginClose(err)
		c.warn(err, "a message was refused, as the server is overloaded")
	case closedByDrain:
		c.beginClose(err)
	default:
		c.beginClose(err)
		c.warn(err, "a message was refused")
	}
}

// refuseInput closes c because of what the peer sent, and says so in the log.
func (c *Conn) refuseInput(err error, text string) {
	if c.isClosing() {
		return
	}
	c.more().ending.reason = closedByInput
	c.beginClose(err)
	c.warn(err, text)
}

// warn logs a warning that peers can cause: each text once a second, for all connections together.
func (c *Conn) warn(err error, text string) {
	if more, ok := c.loop.server.warnings.Pass(text, time.Now()); ok {
		c.Log().Warn().Err(err).Int("more", more).Msg(text)
	}
}

// decodeSoon puts the kept input in the run queue, to be decoded in turn with others.
func (c *Conn) decodeSoon() {
	if c.in.pauses&inRunQueue == 0 {
		c.in.pauses |= inRunQueue
		c.loop.runSoon((*waitingInput)(c))
	}
}

// waitingInput makes a Conn a runnable.
type waitingInput Conn

// Run decodes what is kept, if there is no reason any more not to. The socket is read again when
// all of that is done.
func (w *waitingInput) Run() {
	c := (*Conn)(w)
	c.in.pauses &^= inRunQueue
	switch {
	case !c.isOpen():
		return
	case c.in.pauses != 0:
		if c.outlivesSocket() {
			c.deliverEnd()
		}
		return
	}
	c.decode(c.in.decoder.Lend(), c.loop.slice.seen, c.loop.slice.end)
	c.in.decoder.Return()
	if c.in.socketPaused && c.in.pauses == 0 && c.isOpen() {
		if c.in.socketPaused = false; c.in.end == notEnded {
			c.sock.Resume()
		}
	}
	c.watchRecord()
	c.deliverEnd()
}

// hold keeps input that arrived while paused, and pauses the socket: not before something arrives,
// so that a short pause costs nothing.
func (c *Conn) hold(p []byte) {
	c.callHook(func() { c.in.decoder.Keep(p) }) // it asks the codec how long the frame is
	if c.in.pauses != inRunQueue || c.in.decoder.Buffered() > keptOpen {
		c.stopReading()
	}
}

// hasUnread reports whether input, or the end, waits in the socket, as far as that tells of c
// alone.
func (c *Conn) hasUnread() bool { return c.in.end == notEnded && c.sock != nil && c.sock.HasInput() }

// stopReading pauses the socket. One that cannot be paused is read on, up to a limit.
func (c *Conn) stopReading() {
	if c.in.socketPaused || c.sock == nil {
		return
	}
	if err := c.sock.Pause(); err == nil {
		c.in.socketPaused = true
	} else if c.in.decoder.Buffered() > maxHeld {
		c.beginClose(fmt.Errorf("loop: reading cannot be paused: %w", err))
	}
}

// OnEOF calls f on the loop when the peer has shut down its output (a half-close: shutdown, nc -N)
// and all its input was delivered. c then stays open, and the peer still gets what is sent, until
// something else closes it, such as Close, the idle timeout, or a send that fails. Without this
// hook, a peer that shuts down its output counts as closed, because most such peers have closed
// altogether: c stays open until its offloaded jobs are done, and then closes. Pending output is
// still sent, but timers and Tells do not run any more.
//
// To close after pending replies, call CloseAfter of handler.Replies. To close after offloaded
// jobs, add one more, since they run in order:
//
//	c.OnEOF(func() { _ = loop.Offload(c, noJob, func(c *loop.Conn, _ int) { c.Close() }) })
//
// There is one such hook; nil removes it. One that is set after the peer's end was delivered is not
// called. A panic in f closes c.
func (c *Conn) OnEOF(f func()) {
	c.loop.owner.Check("Conn.OnEOF")
	if !c.isClosed() {
		c.more().onEOF = f
	}
}

// holdRead is inside.ForHandler.HoldRead, for a layer between the connection and its handler, which
// may pause it meanwhile.
func (c *Conn) holdRead(on bool) {
	if on {
		c.pause(heldByLayer)
	} else {
		c.resume(heldByLayer)
	}
}

// holdBack is called when more than Server.Limits.HoldBackAt bytes of output wait. Unless the
// socket takes them now, no more input is decoded until half of that has gone.
func (c *Conn) holdBack() {
	if !c.out.box.Blocked {
		c.writeOut()
	}
	if l := c.loop; c.pending() > l.holdBackAt && c.in.pauses&heldBack == 0 {
		c.pause(heldBack)
		l.count.add(numHeldBack, 1)
	}
}

// goOnAfterOutput goes on with what waited for output to go: StartTLS, or the end of holdBack.
func (c *Conn) goOnAfterOutput() {
	if c.tlsStart() != nil {
		c.goOnTLS()
	}
	if c.in.pauses&heldBack != 0 && c.pending() <= c.loop.holdBackAt/2 && !c.isClosing() {
		c.resume(heldBack)
		c.runThens()
	}
}

// PauseRead stops reading: no OnMessage from now on, not even for messages that have already
// arrived. The kernel fills its buffers, then TCP flow control stops the peer. Nothing is lost,
// except the datagrams of a UDP session. It is for a handler that forwards messages to something
// slower than the peer.
//
// Until ResumeRead, the loop does not notice that the peer has closed, unless a send fails. On
// Linux it notices that a TCP peer resets the connection, and closes c at once: messages not yet
// delivered are then lost, as are bytes that the reset overtakes. The idle timeout keeps running,
// but bytes that wait, in the loop or in the socket, count as received, with two exceptions: output
// is pending and the peer takes none of it, or the peer has shut down its output (only Linux
// reports that while unread bytes remain). In these cases the idle timeout evicts c within twice
// its duration. Without an idle timeout, TCP keep-alive finds a peer that has closed in both
// directions.
func (c *Conn) PauseRead() {
	c.loop.owner.Check("Conn.PauseRead")
	c.pause(pausedByUser)
}

func (c *Conn) pause(why pauses) {
	c.setPauses(c.in.pauses | why)
	c.stopFrame()
	if c.outlivesSocket() {
		c.decodeSoon() // so deliverEnd comes, which closes c if this pause may last for ever: heldUnread
	}
}

// setPauses changes the reasons, and measures for how long there is one.
func (c *Conn) setPauses(p pauses) {
	before := c.isPaused()
	if p&hopping != 0 && p != c.in.pauses {
		c.touch() // it may have nothing left to wait for
	}
	c.in.pauses = p
	if w := c.idle.extras; w != nil && c.isPaused() != before {
		if now := c.loop.clock(); before {
			w.pausedFor += now
		} else {
			w.pausedFor -= now
		}
	}
}

// isPaused reports whether there is a reason besides the loop's own business.
func (c *Conn) isPaused() bool { return c.in.pauses&^inRunQueue != 0 }

// ResumeRead ends PauseRead, but not a pause by a Pipe or handler.Replies. Messages are delivered
// after the current callback, in their order.
func (c *Conn) ResumeRead() {
	c.loop.owner.Check("Conn.ResumeRead")
	c.resume(pausedByUser)
}

// resume ends pause. If no reason is left, the kept input is decoded.
func (c *Conn) resume(why pauses) {
	if c.in.pauses&why == 0 || c.isClosing() {
		return
	}
	if c.setPauses(c.in.pauses &^ why); c.in.pauses == 0 && c.loop.running.decoding != c.id {
		c.decodeSoon()
	}
}

// poisonText is what bytes become that were lent, over and over: who keeps them sees it.
const poisonText = "LENT NO LONGER. "

// deliver passes a message to the handler.
func (c *Conn) deliver(msg []byte) error {
	if c.loop.poisons {
		return c.deliverCopy(msg)
	}
	return c.handler.OnMessage(c, msg)
}

// deliverCopy is deliver for Server.Debug.Strict. It lends a copy, whatever the codec made the
// message of: the loop's buffer, its own, or a constant.
func (c *Conn) deliverCopy(msg []byte) error {
	lent := append(make([]byte, 0, len(msg)), msg...)
	defer func() {
		for n := 0; n < len(lent); {
			n += copy(lent[n:], poisonText)
		}
	}()
	return c.handler.OnMessage(c, lent)
}
