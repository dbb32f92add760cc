package loop

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/outbox"
)

// This file is the output of a connection: what Send and Write append, when it is written, and who
// waits for that.

// Where nothing tells when it is time, the wheel tries again after a pause: tryAgain and
// waitForPeer.
const minRetry, maxRetry = time.Millisecond, 64 * time.Millisecond

// output is what a connection sends.
type output struct {
	box          *outbox.Box // nil: nothing waits
	todo         todo        // at the end of the turn
	finRequested bool        // by CloseWrite, or the close: FIN is sent, or follows the box

	// How many of those who answer the peer owe it something, and of those who ask it wait.
	owed, awaited uint16
}

// todo are bits of what the next settle of a connection does.
type todo uint8

const (
	settleDue     todo = 1 << iota // it comes: the connection is in loop.touched, or received runs
	listed                         // the connection is in loop.touched
	afterWriteDue                  // settle calls afterWrite
)

// Send appends one message, framed by the codec, to the output. The messages of one callback are
// written together when it returns. After a callback that sends to four or more connections, their
// writes are delayed by up to 1 ms, or until the callback that is running then returns. Each
// includes what other callbacks send to the same connection meanwhile. msg is copied.
//
// The message is accepted whole if fewer than Server.Limits.MaxOutbound bytes were pending before
// it, after an attempt to write them to the socket. Otherwise the connection closes at once with
// ErrSlowConsumer, which Send also returns. After Close it returns ErrClosed. If the codec fails,
// Send returns its error; nothing is sent, and the connection stays open.
//
// On a UDP session Send sends one datagram, without a codec. It may return ErrDatagramTooLong,
// ErrAmplification, or the system's error. A datagram that the system does not accept is lost
// without an error: see Stats.Lost.
func (c *Conn) Send(msg []byte) error {
	l := c.loop
	l.owner.Check("Conn.Send")
	b := c.out.box
	if c.isUDP() {
		return c.sendDatagram(msg)
	}
	if c.isClosing() || c.out.finRequested || b != nil && b.Len() >= l.maxOutbound {
		if err := c.admitOutput(); err != nil {
			return err
		}
		b = c.out.box
	}
	if b == nil {
		b = l.store.Get()
		c.out.box = b
	}
	if c.out.todo&settleDue == 0 {
		c.touch() // before user code, which may panic
	}
	if len(msg) >= int(c.in.prefixLimit) || !b.AppendPrefixed(msg) {
		return c.frame(msg)
	}
	if c.extras != nil {
		c.checkHighWater()
	}
	return nil
}

// frame has the codec append msg to the output.
func (c *Conn) frame(msg []byte) error {
	dst := c.out.box.BeginAppend(len(msg), &c.loop.store)
	tail, err := c.in.decoder.Codec().AppendFrame(dst, msg)
	switch {
	case err != nil:
		tail = nil // nothing, whatever the codec has made of it
	case !extends(tail, dst):
		tail, err = nil, fmt.Errorf("%w: AppendFrame has dropped what was in dst", codec.ErrContract)
	case len(tail) == len(dst):
		c.countKept(len(msg))
	}
	c.endAppend(tail)
	return err
}

// extends reports whether tail begins with dst. The bytes are compared if they have been copied.
func extends(tail, dst []byte) bool {
	return len(dst) == 0 || len(tail) >= len(dst) && (&tail[0] == &dst[0] || bytes.Equal(tail[:len(dst)], dst))
}

// Write appends bytes to the output unframed, by the rules of Send. It returns len(p), or 0 and an
// error.
func (c *Conn) Write(p []byte) (int, error) {
	c.loop.owner.Check("Conn.Write")
	if c.isUDP() {
		if err := c.sendDatagram(p); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	if err := c.admitOutput(); err != nil {
		return 0, err
	}
	c.endAppend(append(c.beginAppend(len(p)), p...))
	return len(p), nil
}

// Pending returns how many bytes were sent that the system has not taken yet.
func (c *Conn) Pending() int {
	c.loop.owner.Check("Conn.Pending")
	n := c.pending()
	if n > 0 {
		c.more().watermarks.waited = true // who has seen it may wait for OnFlushed
		c.out.todo |= afterWriteDue
	}
	return n
}

func (c *Conn) pending() int {
	if c.out.box == nil {
		return 0
	}
	return c.out.box.Len()
}

// sendReply sends what the codec has to say by itself, if it is one that has. It is output like any
// other: who asks and never reads the answers is a slow consumer. After CloseWrite nobody hears it.
// counted: it answers something that is no message, of which there may be too many.
func (c *Conn) sendReply(counted bool) {
	r, ok := c.in.decoder.Codec().(codec.Responder)
	if !ok {
		return
	}
	before := c.pending()
	if counted {
		reply := r.AppendReply(nil)
		if len(reply) == 0 {
			return
		}
		c.keptIsSent()
		pass, err := true, error(nil)
		if f, ok := HandlerAs[replyFilter](c); ok { // it may send or close, so no append must be open
			pass, err = f.FilterReply(c)
		}
		if pass && c.mayWrite() == nil {
			c.endAppend(append(c.beginAppend(len(reply)), reply...))
		}
		if err != nil {
			c.refuseMessage(err)
		}
	} else if tail := r.AppendReply(c.beginAppend(0)); c.out.finRequested {
		c.endAppend(nil)
	} else if c.endAppend(tail); c.pending() > before {
		c.keptIsSent()
	}
	if before >= c.loop.maxOutbound && c.pending() > before {
		_ = c.admitOutput()
	}
}

// mayWrite returns ErrClosed if no output will be taken ever again.
func (c *Conn) mayWrite() error {
	if c.isClosing() && c.at() != stateSpeaking || c.out.finRequested {
		return ErrClosed
	}
	return nil
}

// admitOutput returns why no more output is taken, if so. At the limit it tries the socket, and
// cuts a slow consumer.
func (c *Conn) admitOutput() error {
	if err := c.mayWrite(); err != nil {
		return err
	}
	speaking, limit := c.at() == stateSpeaking, c.loop.maxOutbound
	if c.pending() < limit {
		return nil
	}
	c.writeOut()
	switch {
	case c.isClosing() && (!speaking || c.extras.ending.dropOutput):
		return ErrClosed
	case c.pending() < limit:
		return nil
	case speaking: // the last words must not cost what was sent before
		return ErrSlowConsumer
	}
	c.abort(ErrSlowConsumer)
	return ErrSlowConsumer
}

// beginAppend returns the slice to append a frame of about n bytes to. The caller passes the result
// to endAppend; if user code panics before that, the end of the turn cleans up.
func (c *Conn) beginAppend(n int) []byte {
	c.touch()
	if c.out.box == nil {
		c.out.box = c.loop.store.Get()
	}
	return c.out.box.BeginAppend(n, &c.loop.store)
}

// endAppend takes back what beginAppend returned, with more in it, or not.
func (c *Conn) endAppend(tail []byte) {
	if b := c.out.box; b.EndAppend(tail, &c.loop.store) == 0 && b.Len() == 0 {
		c.releaseOutput()
	}
	if c.extras != nil {
		c.checkHighWater()
	}
}

// touch has c settled when this turn ends.
func (c *Conn) touch() {
	if c.out.todo&settleDue == 0 {
		c.out.todo |= settleDue
		c.list()
	}
}

func (c *Conn) list() {
	if c.out.todo&listed == 0 {
		c.out.todo |= listed
		c.loop.touched.add(c)
	}
}

// writeOut writes as much as the socket takes, and asks for an event when it takes more.
func (c *Conn) writeOut() {
	if c.extras != nil && c.extras.file != nil {
		c.extras.file.writeOut()
		return
	}
	b := c.out.box
	if b == nil {
		return
	}
	if c.sock == nil { // it has gone
		c.releaseOutput()
		return
	}
	n, err := c.sock.Write(b.Bytes())
	if err != nil {
		c.abort(err)
		return
	}
	if n > 0 {
		c.wrote(n)
	}
	if n == b.Len() {
		c.out.box = nil
		c.loop.store.Put(b)
		if c.out.finRequested {
			c.sock.CloseWrite()
		}
		return
	}
	b.Consume(n, &c.loop.store)
	moves := n > 0 || !b.Blocked
	b.Blocked = true
	c.outputWaits(moves)
	if !c.sock.NotifyWritable() {
		c.tryAgain(n > 0)
	}
}

// unblock makes the next end of a turn retry output that the socket has not taken.
func (c *Conn) unblock() {
	if b := c.out.box; b != nil {
		b.Blocked = false
	}
}

// wrote notes that the system has taken n bytes, more than none.
func (c *Conn) wrote(n int) {
	c.loop.count.add(numBytesOut, n)
	c.idle.lastWrite = c.loop.now
	// A hook of writes wants the instant: a callback of this turn may have taken long.
	if w := c.idle.extras; w != nil {
		if w.stampWrites {
			c.idle.lastWrite = c.loop.clock()
		}
		if w.unacked >= 0 {
			w.unacked += n // so that less is what the peer has acknowledged since
		}
	}
}

// releaseOutput gives back all memory of the output, and what is in it.
func (c *Conn) releaseOutput() {
	if b := c.out.box; b != nil {
		c.out.box = nil
		c.loop.store.Put(b)
	}
}

// hasWritten reports whether the system has taken any output of c.
func (c *Conn) hasWritten() bool { return c.idle.lastWrite != notYet }

// tryAgain calls writable after a pause, for an engine that cannot tell when the socket takes more.
// The pause is short if the last write has made progress, and doubles if not.
func (c *Conn) tryAgain(progress bool) {
	l, x := c.loop, c.more()
	x.retryIn = min(max(minRetry, 2*x.retryIn), maxRetry)
	if progress {
		x.retryIn = minRetry
	}
	if !l.wheel.Pending(x.retry) {
		x.retry = l.wheel.At(l.fromNow(x.retryIn), c.writable)
	}
}

// CloseWrite shuts down the output only: after the pending output the peer reads EOF. From now on
// Send and Write return ErrClosed. The loop still reads from c, and closes it when the peer has shut
// down its output, too.
func (c *Conn) CloseWrite() {
	c.loop.owner.Check("Conn.CloseWrite")
	if c.isClosing() || c.out.finRequested {
		return
	}
	c.out.finRequested = true
	if c.out.box == nil && c.sock != nil && !c.sendsFile() {
		c.sock.CloseWrite()
	}
	c.closeIfEnded()
}

// watermarks are what a connection's user wants to know about its pending output.
type watermarks struct {
	limit     int
	onHigh    func()
	onFlushed func()
	high      bool         // the mark was passed, and the output has not been flushed since
	waited    bool         // output has had to wait, and has not been flushed since
	told      bool         // flushed is in the run queue
	waiters   []roomWaiter // of whenPending
}

// flushed makes a Conn a runnable that calls OnFlushed's function. That may send as much as the
// socket takes, each time: so it is called once in a turn, and the loop polls its sockets before.
type flushed Conn

func (w *flushed) Run() {
	c := (*Conn)(w)
	if c.isFrozen() {
		c.postpone(w.Run, nil)
		return
	}
	if !c.isOpen() {
		return
	}
	water := &c.extras.watermarks
	water.told = false
	if c.isBlocked() { // again, so it will be flushed again
		return
	}
	c.callHookAs(meter.Flushed, water.onFlushed)
}

type roomWaiter struct {
	max int
	f   func()
}

// OnHighWater calls f on the loop when more than n bytes of output are pending, so that the handler
// can stop producing. f runs at once, within the Send or Write that exceeds n, and again only after
// the output has been flushed. There is one such hook per connection; nil removes it. A panic in f
// closes c. OnHighWater panics if n is negative.
//
// Input needs no such hook: see Server.Limits.HoldBackAt.
func (c *Conn) OnHighWater(n int, f func()) {
	c.loop.owner.Check("Conn.OnHighWater")
	if n < 0 {
		panic("loop: Conn.OnHighWater with a negative mark")
	}
	if c.isClosed() {
		return
	}
	w := &c.more().watermarks
	w.limit, w.onHigh = n, f
}

// OnFlushed calls f on the loop when the system has accepted all output, so that the handler can
// produce more. It does so each time that some output had to wait, that OnHighWater's mark was
// exceeded, or that Pending was read and was not 0. f runs at most once in a turn of the loop,
// after the loop has polled its sockets, so a producer does not delay other connections. There is
// one such hook per connection; nil removes it. A panic in f closes c.
func (c *Conn) OnFlushed(f func()) {
	c.loop.owner.Check("Conn.OnFlushed")
	if c.isClosed() {
		return
	}
	w := &c.more().watermarks
	if w.onFlushed = f; c.extras.file != nil || c.out.box != nil && c.out.box.Blocked {
		w.waited = true // which nobody wanted to know before
		c.out.todo |= afterWriteDue
	}
}

// checkHighWater is called after output was appended.
func (c *Conn) checkHighWater() {
	w := &c.extras.watermarks
	if w.onHigh != nil && !w.high && c.isOpen() && c.pending() > w.limit {
		w.high = true
		c.out.todo |= afterWriteDue
		c.callHook(w.onHigh)
	}
}

// afterWrite is called after output was written.
func (c *Conn) afterWrite() {
	w, pipe := &c.extras.watermarks, c.extras.pipe
	if len(w.waiters) > 0 {
		c.notifyWaiters()
	}
	if !c.isOpen() || w.onHigh == nil && w.onFlushed == nil && pipe == nil {
		return
	}
	if c.out.box != nil || c.extras.file != nil {
		w.waited = true
		c.out.todo |= afterWriteDue
		return
	}
	if len(w.waiters) == 0 {
		c.out.todo &^= afterWriteDue
	}
	if w.waited || w.high {
		w.high, w.waited = false, false
		if w.onFlushed != nil && !w.told {
			w.told = true
			c.loop.runSoon((*flushed)(c))
		}
	}
	if pipe != nil {
		pipe.to.resume(heldByPipe)
	}
}

// notifyWaiters tells those who wait for room, if there is. Timers run them, each
// of which may send much.
func (c *Conn) notifyWaiters() {
	w := &c.extras.watermarks
	pending := c.pending()
	w.waiters = slices.DeleteFunc(w.waiters, func(r roomWaiter) bool {
		if pending <= r.max {
			c.AfterFunc(0, r.f)
			return true
		}
		return false
	})
}

// whenPending is inside.ForHandler.WhenPending.
func (c *Conn) whenPending(max int, f func()) bool {
	if c.pending() <= max {
		return true
	}
	if f == nil {
		return false
	}
	w := &c.more().watermarks
	w.waiters = append(w.waiters, roomWaiter{max, f})
	c.out.todo |= afterWriteDue
	return false
}

// writable goes on with the output when the socket takes more.
func (c *Conn) writable() {
	if c.isClosed() {
		return
	}
	c.writeOut()
	c.goOnAfterOutput()
	if c.extras != nil {
		c.afterWrite()
	}
	if c.isClosing() {
		c.touch()
	}
}
