package loop

import (
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec"
)

// This file makes a connection of a loop a net.Conn for a goroutine. The socket gets a new Conn,
// whose handler is the net.Conn. Limits, the drain, closing and metrics apply to it as to any
// other.

// netMark is how many bytes wait at most, about, in each direction between a loop and a goroutine.
const netMark = 64 << 10

// NetConn turns c into a net.Conn for a goroutine: for net/http, ssh, yamux, or any other code that
// needs one. TLS stays below it. Its Read first returns bytes that have arrived but were not
// delivered; in OnMessage they begin after the current message. As with Detach, they do not include
// what a codec keeps. Output from before the call is written first. NetConn may be called in
// Accept, which may then return nil, or a handler that gets only OnClose. It may also be called in
// a Dialer's open function.
//
// After NetConn, c is closed: its timers, hooks, jobs and idle timeouts are stopped, Send and Write
// return ErrClosed, and OnClose runs after the current callback, with ErrDetached. The connection
// still counts in Stats.Conns and in all limits until it ends.
//
// Deadlines, CloseWrite, addresses and errors of the net.Conn follow package net. Read reads from a
// buffer of about 64 KiB; while it is full, the loop does not read from the peer. Write copies into
// a buffer, and blocks while it is full. Never call Read or Write on a loop, because both may
// block. Close flushes in the background, as Conn.Close does, and may be called on a loop. While in
// use, a connection costs the goroutine that reads it, with its stack. To leave the loop
// altogether, use Detach.
//
// The drain closes the connection like any other. A goroutine that must finish something first
// calls the method SetBusy(bool) of the net.Conn, which is Conn.SetBusy for any goroutine.
//
// If NetConn returns an error, it has had no effect. The error is ErrClosed, or says that c is a
// UDP session, in a Pipe, about to start TLS, sending a file, or moving to another process.
func (c *Conn) NetConn() (net.Conn, error) {
	c.loop.owner.Check("Conn.NetConn")
	return c.becomeNet(ErrDetached)
}

// mayBecomeNet says what is in the way.
func (c *Conn) mayBecomeNet() error {
	switch {
	case c.isClosing():
		return ErrClosed
	case c.isUDP():
		return errors.New("loop: Conn.NetConn: a UDP session is no stream")
	case c.tlsStart() != nil:
		return errors.New("loop: Conn.NetConn: the connection is about to speak TLS: wait until StartTLS is done")
	case c.isFrozen():
		return errIsMoving
	case c.sendsFile():
		return errors.New("loop: Conn.NetConn: a file is being sent")
	case c.isInPipe():
		return errors.New("loop: Conn.NetConn: the connection is in a Pipe")
	}
	return nil
}

// becomeNet is NetConn with the reason that OnClose gets.
func (c *Conn) becomeNet(reason error) (codec.NetConn, error) {
	if err := c.mayBecomeNet(); err != nil {
		return nil, err
	}
	l := c.loop
	n := &netConn{mark: min(netMark, l.holdBackAt/2, l.maxOutbound/4)}
	n.r.cond.L, n.w.cond.L = &n.mu, &n.mu
	n.busy, n.fin = c.isBusy(), c.out.finRequested
	a := arrival{net: n}
	n.c = c.passOn(&a, reason)
	n.in = a.read
	n.c.more().onEOF = n.ended
	if n.c.in.socketPaused {
		n.c.decodeSoon() // which reads on
	} else {
		n.c.deliverEnd()
	}
	if state, ok := n.c.TLS(); ok {
		return tlsNetConn{n, state}, nil
	}
	return n, nil
}

// passOn closes c with reason, and begins a Conn that goes on with its socket. a says which, and
// gets the input that was not delivered. The link stays the same.
func (c *Conn) passOn(a *arrival, reason error) *Conn {
	l, k := c.loop, c.link()
	to := &Conn{loop: l, sock: c.sock, stage: c.stage}
	a.conn, a.slot, a.local, a.from = to, c.takeSlot(), c.LocalAddr(), c
	a.notes, a.read = c.notes(), c.undelivered()
	to.more().inheritedLink = k
	c.more().successor, (*Conn)(k).more().successor = to, to
	c.stage, k.stage = passedOn, passedOn
	c.dropSocket()
	to.begin(a)
	c.beginClose(reason)
	if l.draining && to.isOpen() {
		to.AfterFunc(0, to.closeWhenDone)
	}
	return to
}

// continueFrom gives a new Conn what the old one has of the socket that it goes on with.
func (c *Conn) continueFrom(from *Conn) {
	c.idle.opened, c.idle.lastWrite = from.idle.opened, from.idle.lastWrite
	c.idle.lastRead = c.loop.now // Timeouts.FirstByte is over
	c.in.end, c.in.socketPaused = from.in.end, from.in.socketPaused
	c.out.finRequested = from.out.finRequested
	c.more().broken = from.more().broken
	c.endIsNews()
	if b := from.out.box; b != nil {
		c.out.box, from.out.box = b, nil
		c.unblock()
		c.touch()
	}
}

// isNet reports whether c is a net.Conn for a goroutine.
func (c *Conn) isNet() bool {
	_, ok := c.handler.(*netConn)
	return ok
}

// A netRequest is codec.Peer.NetConn, until no callback of the connection runs.
type netRequest struct {
	c      *Conn
	reason error
	serve  func(codec.NetConn)
}

func (c *Conn) netConnSoon(reason error, serve func(codec.NetConn)) error {
	err := c.mayBecomeNet()
	if err == nil {
		c.pause(heldByCodec)
		c.loop.runSoon(&netRequest{c, reason, serve})
	}
	return err
}

// Run implements runnable.
func (r *netRequest) Run() {
	n, err := r.c.becomeNet(r.reason)
	if err != nil {
		r.c.beginClose(err) // unless it closes already
		return
	}
	n.SetBusy(true)
	r.serve(n)
}

// A netConn implements net.Conn, and is the Handler of its Conn.
type netConn struct {
	c    *Conn
	mark int

	mu     sync.Mutex
	busy   bool // SetBusy
	r, w   half
	in     []byte // for Read
	at     int    // how much of in was read
	paused bool   // in is full, and the loop reads no more
	eof    bool
	out    []byte // for the loop
	told   bool   // the loop will call flush
	fin    bool   // CloseWrite
	closed bool   // Close
	back   bool   // GiveBack: what comes is for the next Conn
	gone   error  // why the connection has closed
}

// A tlsNetConn has the method by which net/http finds out that a connection speaks TLS.
type tlsNetConn struct {
	*netConn
	state tls.ConnectionState
}

func (t tlsNetConn) ConnectionState() tls.ConnectionState { return t.state }

// A half is one direction: who waits, and until when.
type half struct {
	cond  sync.Cond // its lock is netConn.mu
	until time.Time
	timer *time.Timer
	over  bool
}

// set sets the deadline.
func (h *half) set(t time.Time) {
	h.until, h.over = t, false
	if h.timer != nil {
		h.timer.Stop()
	}
	switch d := time.Until(t); {
	case t.IsZero():
	case d <= 0:
		h.over = true
		h.cond.Broadcast()
	case h.timer == nil:
		h.timer = time.AfterFunc(d, h.fire)
	default:
		h.timer.Reset(d)
	}
}

// fire may come late, when another deadline has been set.
func (h *half) fire() {
	h.cond.L.Lock()
	defer h.cond.L.Unlock()
	if !h.until.IsZero() && !h.over {
		h.set(h.until)
	}
}

// OnMessage implements Handler.
func (n *netConn) OnMessage(c *Conn, msg []byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed && !n.back {
		return nil
	}
	if n.at > 0 && len(n.in)+len(msg) > cap(n.in) {
		n.in, n.at = n.in[:copy(n.in, n.in[n.at:])], 0
	}
	n.in = append(n.in, msg...)
	if len(n.in)-n.at > n.mark && !n.paused {
		n.paused = true
		c.pause(heldByPipe)
		c.stopReading()
	}
	n.r.cond.Broadcast()
	return nil
}

// ended is called on the loop when the peer has ended its output.
func (n *netConn) ended() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.eof = true
	n.r.cond.Broadcast()
}

// OnClose implements Handler.
func (n *netConn) OnClose(_ *Conn, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone = err; err == nil || errors.Is(err, ErrServerClosed) {
		n.gone = net.ErrClosed
	}
	n.r.cond.Broadcast()
	n.w.cond.Broadcast()
}

// wakeLoop makes the loop take what was written. If it does not, OnClose is on its way.
func (n *netConn) wakeLoop() {
	if !n.told {
		n.told = n.c.Ref().Tell(n.flush) == nil
	}
}

// flush takes what was written, on the loop, when there is room for it.
func (n *netConn) flush(c *Conn) {
	if !c.whenPending(n.mark/2, func() { n.flush(c) }) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = false
	n.send(c)
}

// send gives the loop what was written. n.mu is held.
func (n *netConn) send(c *Conn) {
	if len(n.out) > 0 && c.mayWrite() == nil { // MaxOutbound is no limit to what is left at the end
		c.endAppend(append(c.beginAppend(len(n.out)), n.out...))
	}
	n.out = emptied(n.out)
	n.w.cond.Broadcast()
	if n.fin {
		c.CloseWrite()
	}
}

// emptied returns b without its bytes, for more: nil if it is too large for an idle connection.
func emptied(b []byte) []byte {
	if cap(b) > 4<<10 {
		return nil
	}
	return b[:0]
}

// failed returns the error of an operation as package net does.
func (n *netConn) failed(op string, err error) error {
	if err == io.EOF {
		return err
	}
	local := n.LocalAddr()
	return &net.OpError{Op: op, Net: local.Network(), Source: local, Addr: n.RemoteAddr(), Err: err}
}

// Read implements net.Conn.
func (n *netConn) Read(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case n.closed:
			return 0, n.failed("read", net.ErrClosed)
		case n.r.over:
			return 0, n.failed("read", os.ErrDeadlineExceeded)
		case len(p) == 0:
			return 0, nil
		case n.at < len(n.in):
			return n.take(p), nil
		case n.eof:
			return 0, io.EOF
		case n.gone != nil:
			return 0, n.failed("read", n.gone)
		}
		n.r.cond.Wait()
	}
}

// take moves input into p. n.mu is held.
func (n *netConn) take(p []byte) int {
	k := copy(p, n.in[n.at:])
	if n.at += k; n.at == len(n.in) {
		n.in, n.at = emptied(n.in), 0
	}
	if n.paused && len(n.in)-n.at <= n.mark/2 {
		n.paused = false
		_ = n.c.Ref().Tell(func(c *Conn) { c.resume(heldByPipe) }) // an error: c has closed
	}
	return k
}

// Write implements net.Conn.
func (n *netConn) Write(p []byte) (done int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case n.closed:
			return done, n.failed("write", net.ErrClosed)
		case n.w.over:
			return done, n.failed("write", os.ErrDeadlineExceeded)
		case n.fin || n.gone == io.EOF:
			return done, n.failed("write", syscall.EPIPE)
		case n.gone != nil:
			return done, n.failed("write", n.gone)
		case len(p) == 0:
			return done, nil
		}
		k := min(n.mark-len(n.out), len(p))
		if k == 0 {
			n.w.cond.Wait()
			continue
		}
		n.out = append(n.out, p[:k]...)
		p, done = p[k:], done+k
		if n.wakeLoop(); len(p) == 0 {
			return done, nil
		}
	}
}

// CloseWrite ends the output after what was written, as that of a net.TCPConn does.
func (n *netConn) CloseWrite() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.gone != nil {
		return n.failed("close", net.ErrClosed)
	}
	n.fin = true
	n.wakeLoop()
	n.w.cond.Broadcast()
	return nil
}

// Close implements net.Conn.
func (n *netConn) Close() error { return n.close(false, func(c *Conn) { c.beginClose(nil) }) }

// close ends what the goroutine does. Then runs on the loop, after what was written.
func (n *netConn) close(back bool, then func(c *Conn)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.failed("close", net.ErrClosed)
	}
	n.closed, n.back = true, back
	n.r.set(time.Time{})
	n.w.set(time.Time{})
	n.r.cond.Broadcast()
	n.w.cond.Broadcast()
	_ = n.c.Ref().Tell(func(c *Conn) { // an error: c has closed
		n.mu.Lock()
		n.send(c)
		n.mu.Unlock()
		then(c)
	})
	return nil
}

func (n *netConn) LocalAddr() net.Addr  { return n.c.LocalAddr() }
func (n *netConn) RemoteAddr() net.Addr { return n.c.RemoteAddr() }

func (n *netConn) SetDeadline(t time.Time) error {
	return cmp.Or(n.SetReadDeadline(t), n.SetWriteDeadline(t))
}
func (n *netConn) SetReadDeadline(t time.Time) error  { return n.setDeadline(&n.r, t) }
func (n *netConn) SetWriteDeadline(t time.Time) error { return n.setDeadline(&n.w, t) }

func (n *netConn) setDeadline(h *half, t time.Time) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return n.failed("set", net.ErrClosed)
	}
	h.set(t)
	return nil
}

// isBusy reports whether the drain has to wait: also for what the loop has not taken yet.
func (n *netConn) isBusy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.busy || n.told
}

// SetBusy implements codec.NetConn. It costs the loop nothing before the server drains.
func (n *netConn) SetBusy(busy bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy = busy; !busy && n.c.at() == stateDraining {
		_ = n.c.Ref().Tell((*Conn).touch) // an error: c has closed
	}
}

// Panicked implements codec.NetConn.
func (n *netConn) Panicked(v any) { n.c.jobPanicked(v) }

// GiveBack implements codec.NetConn.
func (n *netConn) GiveBack(read []byte) error {
	return n.close(true, func(c *Conn) { n.giveBack(c, read) })
}

// giveBack waits until all is written: what Accept sends comes after that.
func (n *netConn) giveBack(c *Conn, read []byte) {
	if !c.whenPending(0, func() { n.giveBack(c, read) }) {
		return
	}
	n.mu.Lock()
	read = append(read, n.in[n.at:]...)
	n.mu.Unlock()
	var a arrival
	to := c.passOn(&a, ErrDetached)
	a.read = append(read, a.read...)
	if to.isOpen() {
		a.passOnRead()
	}
}
