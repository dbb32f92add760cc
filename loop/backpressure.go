package loop

import (
	"fmt"
	"slices"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// pauses are the reasons why a connection's input is not decoded, and what the socket knows of it.
type pauses uint16

const (
	pausedByUser   pauses = 1 << iota // PauseRead
	pausedByDrain                     // the server drains, and jobs are waited for
	heldBack                          // more than HighWater of its output waits
	heldByJobs                        // many jobs of it wait
	pausedForShare                    // it has had its share of the loop, and goes on soon
	pausedSocket                      // the socket does not read, for one of these reasons
	heldByPipe                        // the other side of its pipe does not take what comes
	heldByLayer                       // HoldRead
	startingTLS                       // StartTLS: what comes is the handshake's

	// heldUnread are reasons that may last, with input in the socket that is to be read after them.
	heldUnread = pausedByUser | heldByPipe | heldByLayer
)

// maxHeld is how much input a paused connection takes from a socket that cannot be paused, because
// descriptors have run out.
const maxHeld = 1 << 20

// water is who wants to know about a connection's pending output.
type water struct {
	user    level
	pipe    *level // nil: it is in none
	forRoom []roomWaiter
}

// A roomWaiter waits until at most max bytes are pending.
type roomWaiter struct {
	max int
	f   func()
}

// A level is what one of them wants to know.
type level struct {
	mark      int
	onHigh    func()
	onFlushed func()
	high      bool // the mark was passed, and the output has not been flushed since
	waited    bool // output has had to wait, and has not been flushed since
}

// OnHighWater has f run on the loop when more than n bytes of output are pending: the time to stop
// producing. It runs at once, within the Send or Write that passes the mark, and again only after
// the output was flushed. There is one such hook; nil removes it. A panic in f closes c. A negative
// n panics.
//
// Input needs no such hook: see Server.HighWater.
func (c *Conn) OnHighWater(n int, f func()) {
	c.loop.owner.Check("Conn.OnHighWater")
	if n < 0 {
		panic("loop: Conn.OnHighWater with a negative mark")
	}
	v := &c.more().water.user
	v.mark, v.onHigh = n, f
}

// OnFlushed has f run on the loop when all output has been taken by the system, whenever some of it
// had to wait, or OnHighWater's mark had been passed, or Pending was not 0 when it was asked: the
// time to produce more. There is one such hook; nil removes it. A panic in f closes c.
func (c *Conn) OnFlushed(f func()) {
	c.loop.owner.Check("Conn.OnFlushed")
	c.more().water.user.onFlushed = f
}

// checkMark is called after output was appended.
func (c *Conn) checkMark() {
	w := &c.extras.water
	c.rise(&w.user)
	if w.pipe != nil {
		c.rise(w.pipe)
	}
}

func (c *Conn) rise(v *level) {
	if v.onHigh != nil && !v.high && c.isOpen() && c.pending() > v.mark {
		v.high = true
		c.out.atEnd |= waitedFor
		c.callHook(v.onHigh)
	}
}

// checkWater is called after output was written.
func (c *Conn) checkWater() {
	w := &c.extras.water
	if len(w.forRoom) > 0 {
		c.giveRoom()
	}
	if !c.isOpen() || w.user.onHigh == nil && w.user.onFlushed == nil && w.pipe == nil {
		return
	}
	if c.out.box != nil {
		w.user.waited = true
		c.out.atEnd |= waitedFor
		return
	}
	if len(w.forRoom) == 0 {
		c.out.atEnd &^= waitedFor
	}
	c.fall(&w.user)
	if w.pipe != nil {
		c.fall(w.pipe)
	}
}

func (c *Conn) fall(v *level) {
	if v.waited || v.high {
		v.high, v.waited = false, false
		c.callHook(v.onFlushed)
	}
}

// giveRoom tells those who wait for room, if there is. They have turns of their own, as they may
// send much.
func (c *Conn) giveRoom() {
	w := &c.extras.water
	pending := c.pending()
	w.forRoom = slices.DeleteFunc(w.forRoom, func(r roomWaiter) bool {
		if pending <= r.max {
			c.AfterFunc(0, r.f)
			return true
		}
		return false
	})
}

// WhenPending reports whether at most max bytes of output are pending, so that more may be sent. If
// not, f is called once when that is so, on the loop, in a turn of its own, unless c closes before.
// Several functions may wait. It is for who can wait with what there is to send: Server.MaxOutbound
// is for who cannot. With a nil f it only reports.
func (c *Conn) WhenPending(max int, f func()) bool {
	c.loop.owner.Check("Conn.WhenPending")
	if c.pending() <= max {
		return true
	}
	if f == nil {
		return false
	}
	w := &c.more().water
	w.forRoom = append(w.forRoom, roomWaiter{max, f})
	c.out.atEnd |= waitedFor
	return false
}

// Writable reports whether output is still taken at all: not if c closes, or after CloseWrite.
func (c *Conn) Writable() bool {
	c.loop.owner.Check("Conn.Writable")
	return c.mute() == nil
}

// CheckWrite returns the error that Write would return now, or nil. As Write does, it tries the
// socket and closes c if Server.MaxOutbound bytes are pending after that. It appends nothing, and
// runs no hook of c. A UDP session has no output that waits, so only its end counts.
func (c *Conn) CheckWrite() error {
	c.loop.owner.Check("Conn.CheckWrite")
	return c.room()
}

// HoldRead stops reading, or goes on, as PauseRead and ResumeRead do but apart from them: it is for
// a layer between the connection and its handler, which may pause it meanwhile. It does not count
// how often it was called.
func (c *Conn) HoldRead(on bool) {
	c.loop.owner.Check("Conn.HoldRead")
	if on {
		c.pause(heldByLayer)
	} else {
		c.resume(heldByLayer)
	}
}

func init() {
	engine.SocketOf = func(conn any) engine.Socket {
		switch sock := conn.(*Conn).sock.(type) {
		case *tlsconn.Conn:
			return sock.Raw()
		case *tlsStart:
			return sock.raw
		default:
			return sock
		}
	}
}

// holdBack is called when more than Server.HighWater bytes of output wait. Unless the socket takes
// them now, no more input is decoded until half of that has gone: who asks faster than he reads has
// his input wait, first here and then with him.
func (c *Conn) holdBack() {
	if !c.out.box.Blocked {
		c.writeOut()
	}
	if l := c.loop; c.pending() > l.highWater && c.in.pauses&heldBack == 0 {
		c.pause(heldBack)
		l.count.heldBack++
		l.rare = true
	}
}

// letOn goes on with StartTLS, and ends holdBack.
func (c *Conn) letOn() {
	if s := c.tlsStart(); s != nil {
		s.goOn()
	}
	if c.in.pauses&heldBack == 0 || c.pending() > c.loop.highWater/2 || c.isClosing() {
		return
	}
	c.in.pauses &^= heldBack
	c.runThens()
	if c.isOpen() && c.in.pauses&heldBack == 0 {
		c.resumed()
	}
}

// PauseRead stops reading: no OnMessage from now on, not even of messages that are here already.
// The kernel goes on taking what its buffers hold, then the peer is stopped by TCP's own window.
// Nothing is lost. For a handler that passes messages on to something that is slower than the peer.
//
// Until ResumeRead it is not noticed that the peer has closed, unless sending fails. On Linux, that
// it resets a TCP connection is noticed, and closes c at once: messages that were not delivered yet
// are lost then, as are those that a reset stops on their way. The idle timeout goes on, but while
// bytes wait, here or in the socket, they count as received; unless there is output, too, of which
// the peer takes nothing, or (on Linux) the peer has ended its output behind what waits in the
// socket: then it evicts c within twice its time. Without one, TCP's keepalive finds a peer that
// has closed both ways.
func (c *Conn) PauseRead() {
	c.loop.owner.Check("Conn.PauseRead")
	c.pause(pausedByUser)
}

func (c *Conn) pause(why pauses) {
	c.in.pauses |= why
	c.stopFrame()
}

// ResumeRead ends PauseRead, but not what a Pipe or handler.Replies holds back. Messages are
// delivered after the current callback, in their order.
func (c *Conn) ResumeRead() {
	c.loop.owner.Check("Conn.ResumeRead")
	c.resume(pausedByUser)
}

// resume ends pause.
func (c *Conn) resume(why pauses) {
	if c.in.pauses&why != 0 && !c.isClosing() {
		c.in.pauses &^= why
		c.resumed()
	}
}

// resumed goes on with the input if there is no reason left not to.
func (c *Conn) resumed() {
	if c.in.pauses&^pausedSocket == 0 && c.loop.decoding != c.id {
		c.decodeSoon()
	}
}

// isPaused reports whether there is a reason not to decode.
func (c *Conn) isPaused() bool { return c.in.pauses != 0 }

// keep keeps the rest of a piece of input that is not decoded now. If that is much, more would come
// soon, so the socket is paused.
func (c *Conn) keep(data []byte) {
	c.in.decoder.Keep(data)
	if len(data) > keptOpen {
		c.pauseSocket()
	}
	if c.in.pauses&^pausedSocket == pausedForShare {
		c.decodeSoon()
	} else {
		c.in.pauses &^= pausedForShare // whoever takes the other reason away goes on
		c.stopFrame()
	}
}

// hold keeps input that arrived while paused, and pauses the socket: not before something arrives,
// so that a short pause costs nothing. The decoder asks the codec how long the frame is: that is
// user code.
func (c *Conn) hold(p []byte) {
	c.callHook(func() { c.in.decoder.Keep(p) })
	if !c.isClosing() {
		c.pauseSocket()
	}
}

func (c *Conn) pauseSocket() {
	if err := c.restSocket(); err != nil && c.in.decoder.Buffered() > maxHeld {
		c.shut(fmt.Errorf("loop: reading cannot be paused: %w", err))
	}
}

// restSocket stops reading from the socket.
func (c *Conn) restSocket() error {
	if c.in.pauses&pausedSocket != 0 {
		return nil
	}
	err := c.sock.Pause()
	if err == nil {
		c.in.pauses |= pausedSocket
	}
	return err
}
