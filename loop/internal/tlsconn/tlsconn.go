// Package tlsconn is TLS on an event loop: a layer between a raw engine.Socket and a Host, which
// gets plaintext and writes it through an engine.Socket as well. It knows nothing of package loop.
//
// The handshake is crypto/tls, as it is, and so is all of TLS 1.2. After a handshake of TLS 1.3
// package tlsrecord goes on: see takeOver. The Conn of crypto/tls wants a connection that
// blocks; it gets transport:
//
//   - A handshake runs on a goroutine of its own, beside the loop, since crypto/tls cannot go on
//     with one that has failed for want of input. The goroutine computes, or waits for input that
//     the loop gives it. It tells the loop whenever it waits, and when the handshake has ended.
//   - After that the loop calls crypto/tls, if that goes on, with whole records only. That there are no more
//     is a temporary net.Error, which crypto/tls does not hold against the connection.
//   - What crypto/tls writes goes into a buffer, and from there to the socket in one write.
//
// So an open connection has no goroutine, and no buffers of ours while it is idle.
package tlsconn

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsrecord"
)

const (
	// maxEarly is how much input may wait for the handshake before the socket is paused, and
	// tooEarly how much if it cannot be paused, because descriptors have run out.
	maxEarly = 64 << 10
	tooEarly = 1 << 20

	// minRetry is when a full socket is tried again whose engine cannot tell when it is writable.
	minRetry = time.Millisecond
)

var (
	errTooEarly  = errors.New("more than 1 MiB of input before it could begin, and the socket cannot be paused")
	errNotPaused = errors.New("tls: the socket cannot be paused")
)

// A Host has a Conn. Its methods are called on the loop.
type Host interface {
	// HandshakeDone is called once the connection is open. The Host may close it.
	HandshakeDone()

	// HandshakeFailed is called in place of HandshakeDone. The Conn may not be used any more.
	HandshakeFailed(err error)

	// These are the methods of engine.Sink for plaintext.
	Plaintext(p []byte)
	PlaintextRoom() int
	PlaintextWritable()
	PlaintextEnded(err error)

	// RunLater makes the loop call Conn.GoOn in a later turn, after it has polled its sockets.
	RunLater()

	// DrainAndClose takes over the raw socket, on which an alert was the last output: it reads on
	// for a while, and then closes it. Unread input would make the kernel reset the connection, and
	// the peer might lose the alert. paused: the socket is not being read.
	DrainAndClose(raw engine.Socket, paused bool)
}

// A state is a step in the life of a Conn. They come in this order; some are left out.
type state uint8

const (
	starting  state = iota // Start was not called
	hello                  // a server waits for the first record of the ClientHello
	computing              // the goroutine of the handshake computes, and what it has is its own
	waiting                // it waits for the peer, and the loop may touch what it has
	open                   // the handshake is done
	ended                  // the peer's plaintext has ended; writing goes on if the Host asked for that
	closed
)

// A Conn is the server's or the client's end of a TLS connection. The Host calls Readable, Room,
// Writable and Ended with what the raw socket reports, and uses the Conn as its Socket. All
// methods are called on the loop.
type Conn struct {
	shared   *Shared
	sock     engine.Socket
	host     Host
	hs       *handshake // nil after the handshake
	protocol            // empty until then

	state        state
	paused       bool // by the Host
	queued       bool // GoOn is about to be called
	stopped      bool // the raw socket is not read
	keepsWriting bool // the Host goes on writing after the peer's end
	hostWaits    bool // for PlaintextWritable
	armed        bool // the raw socket has promised a call of Writable
	shut         bool // close_notify is sent, or in out
	finQueued    bool // the raw output is to be ended after out
	lost         bool // the raw socket is gone
	left         int  // what its Unacked said then
	notify       int  // bytes of close_notify

	dataOwed int   // uselessBytes for each record without data, less the data since: see uselessBurst
	err      error // what ends the plaintext: the Host gets it once it does not pause
	rawEnd   error // what ended the raw input, before all of it was dealt with

	in     []byte // ciphertext that waits: for the rest of its record, for GoOn, or for the handshake
	cur    []byte // whole records that are read next
	record []byte // what is left of the one that crypto/tls reads

	out   []byte // ciphertext that the raw socket has not taken
	sent  int    // how much of out it has
	plain int    // plaintext in out that Write has not counted
	retry *retry // calls Writable, unless nil
	place int    // in Shared.awake, from 1; 0: it is not there

	local, remote net.Addr
}

// Config says what a Conn is.
type Config struct {
	TLS           *tls.Config
	Client        bool     // the client's end
	Local, Remote net.Addr // for the hooks in TLS
	Plain         int      // bytes of plain text that Write sends as they are before Start is called
}

// New makes the Conn of a raw socket. The handshake begins with Start.
func New(shared *Shared, cfg Config, sock engine.Socket, host Host) *Conn {
	return &Conn{shared: shared, sock: sock, host: host, local: cfg.Local, remote: cfg.Remote,
		hs: &handshake{cfg: cfg.TLS, client: cfg.Client, before: cfg.Plain}}
}

// setState is the only place where the state changes.
func (c *Conn) setState(s state) {
	was := c.state
	c.state = s
	switch begun := s == computing || s == waiting; {
	case begun && was < computing:
		c.shared.Pending++
	case !begun && (was == computing || was == waiting):
		c.shared.Pending--
	}
	if was == waiting {
		c.shared.waiting.Remove(c.hs.place)
	}
	if s == waiting {
		c.hs.place = c.shared.waiting.PushBack(c)
	}
	if s == closed {
		c.release(&c.in)
		c.release(&c.out)
		c.shared.forget(c)
		c.erase()
	}
}

// State returns what the handshake has settled. False: it was not done.
func (c *Conn) State() (tls.ConnectionState, bool) {
	if c.hs != nil {
		return tls.ConnectionState{}, false
	}
	if c.settled != nil {
		return *c.settled, true
	}
	return c.tls.ConnectionState(), true
}

// Partial reports whether a record has begun that is not whole.
func (c *Conn) Partial() bool {
	return c.state == open && !c.paused && !c.queued && len(c.in) > 0
}

// Readable implements engine.Sink.
func (c *Conn) Readable(p []byte) {
	switch c.state {
	case starting, computing:
		c.hold(p)
		if len(c.in) > maxEarly && !c.stop() && len(c.in) > tooEarly {
			c.fail(errTooEarly, true)
		}
	case hello, waiting:
		c.hold(p)
		c.tryToWork()
	case open:
		c.receive(p)
	}
}

// Writable implements engine.Sink.
func (c *Conn) Writable() {
	c.disarm()
	if c.hostWaits && c.state != closed {
		c.hostWaits = false
		c.host.PlaintextWritable() // writes, which sends what is in out first
	}
	c.flush()
}

// Room implements engine.Sink: as much ciphertext as the Host would take plaintext.
func (c *Conn) Room([]byte) int {
	if c.state == open && !c.paused && !c.queued && len(c.in) < maxRecord {
		return c.host.PlaintextRoom()
	}
	return 0
}

// Held returns how many bytes its buffers have.
func (c *Conn) Held() int { return cap(c.in) + cap(c.out) }

// Ended implements engine.Sink.
func (c *Conn) Ended(err error) {
	switch {
	case c.state < open:
		c.handshakeEnded(err)
	case c.state == open:
		c.openEnded(err)
	case c.state == ended && c.keepsWriting && err == io.EOF && c.sock.KeepWriting():
	case c.state == ended:
		c.lose()
		if c.hostWaits { // nothing else tells it; writing fails
			c.hostWaits = false
			c.host.PlaintextWritable()
		}
	}
}

// openEnded is called when the raw input of an open connection has ended. Input that waits comes
// before that: at once, or after Resume if the Host has paused and the socket goes on writing.
func (c *Conn) openEnded(err error) {
	waits := c.paused || c.queued
	c.rawEnd = err
	if !waits || err != io.EOF || !c.sock.KeepWriting() {
		c.lose()
	}
	c.queued = false
	c.process()
}

// lose is for a raw socket that has gone, or is about to.
func (c *Conn) lose() {
	if !c.lost {
		c.lost, c.left = true, c.sock.Unacked()
	}
}

// endTruncated ends an open connection without a word, as the peer has. Somebody may have cut the
// stream, so its end is never io.EOF.
func (c *Conn) endTruncated() {
	left := c.Unacked()
	c.close(false) // what was sent still arrives
	c.lost, c.left = true, left
	c.host.PlaintextEnded(unexpected(c.rawEnd))
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// HasInput implements engine.Socket.
func (c *Conn) HasInput() bool {
	waits := c.state == starting && len(c.in) > 0 || c.state == open && wholeRecords(c.in) > 0
	return waits || !c.lost && c.rawEnd == nil && c.sock.HasInput()
}

// Unacked implements engine.Socket.
func (c *Conn) Unacked() int {
	if c.lost {
		return c.left
	}
	n := c.sock.Unacked()
	if n >= 0 && c.finQueued { // close_notify and the end are on their way to the raw socket
		n += len(c.out) - c.sent + 1
	}
	return n
}

// Gone implements engine.Ender.
func (c *Conn) Gone() bool {
	if s, ok := c.sock.(engine.Ender); ok && !c.lost {
		return s.Gone()
	}
	return c.lost
}

// Pause implements engine.Socket. A handshake must be read.
func (c *Conn) Pause() error {
	if c.state < open || c.state == open && !c.stop() {
		return errNotPaused
	}
	c.paused = c.state == open
	return nil
}

// Resume implements engine.Socket.
func (c *Conn) Resume() {
	if c.paused {
		c.paused = false
		c.later()
	}
}

// later makes the loop call GoOn.
func (c *Conn) later() {
	if !c.queued {
		c.queued = true
		c.host.RunLater()
	}
}

// GoOn goes on with input that had to wait for Resume, or for its share of the loop.
func (c *Conn) GoOn() {
	c.queued = false
	c.process()
	c.goOnReading()
}

// stop pauses the raw socket, and reports whether it is paused.
func (c *Conn) stop() bool {
	if !c.stopped && c.rawEnd == nil {
		c.stopped = c.sock.Pause() == nil
	}
	return c.stopped || c.rawEnd != nil
}

// goOnReading ends stop, if nothing needs it any more.
func (c *Conn) goOnReading() {
	if c.stopped && !c.paused && !c.queued && !c.lost && c.rawEnd == nil && c.state != closed {
		c.stopped = false
		c.sock.Resume()
	}
}

// Raw returns the socket below.
func (c *Conn) Raw() engine.Socket { return c.sock }

// ErrKept is the error of Detach for a connection that crypto/tls has kept.
var ErrKept = errors.New("tls: the keys are with crypto/tls: the connection speaks TLS 1.2 or has a ClientSessionCache, " +
	"Server.Debug.CryptoTLS is set, or the process is in FIPS 140-3 mode")

// Detach implements engine.Detachable. The connection is a *tlsrecord.NetConn. Input that was read
// and not decrypted is in it.
func (c *Conn) Detach() (net.Conn, []byte, error) {
	if err := c.mayDetach(); err != nil {
		return nil, nil, err
	}
	if _, err := c.pushOut(); err != nil {
		return nil, nil, err
	}
	if len(c.out) > 0 {
		c.flush()
		return nil, nil, engine.ErrUnflushed
	}
	sock, ok := c.sock.(engine.Detachable)
	if !ok {
		return nil, nil, errors.ErrUnsupported
	}
	nc, ahead, err := sock.Detach()
	if err != nil {
		return nil, nil, err
	}
	input := slices.Concat(c.cur, c.in, ahead)
	detached := tlsrecord.NewNetConn(nc, c.records, *c.settled, input)
	c.records = nil // it has a new owner, so close does not erase it
	c.lost = true
	c.close(true)
	return detached, nil, nil
}

// mayDetach says what is in the way of Detach, and of a move to another process.
func (c *Conn) mayDetach() error {
	switch {
	case c.tls != nil:
		return ErrKept
	case c.state != open && !(c.state == ended && c.keepsWriting) || c.lost || c.err != nil && c.err != io.EOF || c.rawEnd != nil:
		return net.ErrClosed
	}
	return nil
}

// KeepWriting implements engine.Socket. After close_notify the raw socket is still there.
func (c *Conn) KeepWriting() bool {
	c.keepsWriting = c.state == ended
	return c.keepsWriting
}

// CloseWrite implements engine.Socket: close_notify, and after it the end of the raw stream. In a
// handshake that waits for its end.
func (c *Conn) CloseWrite() {
	c.finQueued = true
	if c.state == open || c.state == ended {
		c.sendCloseNotify()
		c.flush()
	}
}

func (c *Conn) sendCloseNotify() {
	if c.shut || c.lost {
		return
	}
	c.shut = true
	before := len(c.out)
	if c.records != nil {
		c.out = c.shared.extend(c.out, c.crypt().CloseNotify(c.shared.small[:0]))
	} else {
		c.cryptoCloseNotify()
	}
	c.notify = len(c.out) - before
}

func (c *Conn) cryptoCloseNotify() {
	var err error
	defer c.shared.rescue(&err)
	_ = c.tls.CloseWrite() // it writes to us, which does not fail
}

// CloseNotify returns how many bytes of what was sent are close_notify: the last ones, if any.
func (c *Conn) CloseNotify() int { return c.notify }

// Close implements engine.Socket. A close_notify tells an open peer that this is the end.
func (c *Conn) Close() {
	if (c.state == open || c.state == ended) && !c.lost && c.plain == 0 {
		c.sendCloseNotify()
		_, _ = c.pushOut() // as far as it goes
	}
	c.end(false)
}

// Reset implements engine.Socket.
func (c *Conn) Reset() { c.end(true) }

func (c *Conn) end(hard bool) {
	switch c.state {
	case closed:
	case open, ended:
		c.close(hard)
	default:
		c.Abort(net.ErrClosed, hard)
	}
}

// close closes the raw socket, if it is not gone.
func (c *Conn) close(hard bool) {
	c.setState(closed)
	switch {
	case c.lost:
	case hard:
		c.sock.Reset()
	default:
		c.sock.Close()
	}
}

// closeAfterAlert closes the raw socket so that the peer reads the last alert.
func (c *Conn) closeAfterAlert(hard bool) {
	c.flush()
	if hard || c.lost || c.rawEnd != nil || len(c.out) > 0 {
		c.close(hard)
		return
	}
	c.setState(closed)
	c.host.DrainAndClose(c.sock, c.stopped)
}

// hold keeps input.
func (c *Conn) hold(p []byte) { c.in = c.shared.extend(c.in, p) }

func (c *Conn) release(b *[]byte) {
	if *b != nil {
		c.shared.cfg.Pool.Put(*b)
		*b = nil
	}
}
