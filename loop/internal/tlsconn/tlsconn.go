// Package tlsconn is TLS on an event loop: a layer between a raw engine.Socket and who reads and
// writes plaintext through an engine.Socket as well. It knows nothing of package loop.
//
// The protocol is crypto/tls, as it is. Its Conn wants a connection that blocks; it gets one that
// does not:
//
//   - A handshake has a goroutine, which runs in turns with the loop, as crypto/tls cannot go on
//     with one that has failed for want of input. It begins when the whole ClientHello is there, is
//     suspended where it would wait for the peer, and ends with the handshake. What costs it does
//     beside the loop, a few at a time, and what comes of that it sends by itself.
//   - After that, crypto/tls gets whole records only. That there are no more is a temporary
//     net.Error, which it does not hold against the connection.
//   - What it writes goes into a buffer of the loop, and leaves it in one write.
//
// So there is no goroutine per connection, and one buffer of plaintext and one of ciphertext per
// loop.
package tlsconn

import (
	"crypto/tls"
	"io"
	"net"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A Host is told how a connection begins. Its methods are called on the loop, one of them, once;
// none after Conn.Close, and not within New.
type Host interface {
	// Opened says that the handshake is done. The Sink takes the plaintext from now on; nil closes
	// the connection, unless that was done already. The Conn is its Socket.
	Opened(c *Conn) engine.Sink

	// Failed says that there will be no connection, and why. Nothing of it may be used any more.
	Failed(err error)
}

// A Rester is a Sink that wants to know more than Readable tells.
type Rester interface {
	// Rested says that input which was held back has been dealt with. It is called on the loop.
	Rested()
}

// States of a Conn.
type state uint8

const (
	handshaking state = iota
	open
	ended // the peer has sent close_notify; writing goes on if the sink asked for that
	closed
)

// A Conn is the server's or the client's end of a TLS connection. To the raw socket it is the Sink,
// to who uses it the Socket. All methods are called on the loop.
type Conn struct {
	loop *Loop
	sock engine.Socket
	sink engine.Sink // nil until the handshake is done
	host Host        // nil after it
	tls  *tls.Conn
	hs   *handshake // nil after it

	state     state
	paused    bool // by the sink
	resuming  bool // held input is about to be decrypted
	resting   bool // it has had its share of the loop, and goes on soon
	final     bool // the raw input has ended: what is left is decrypted at once
	lingers   bool // the sink goes on writing after the peer's end
	sinkWaits bool // for Writable
	armed     bool // the raw socket has promised a call of Writable
	sealing   bool // within seal: what crypto/tls writes goes to the loop's buffer
	shut      bool // close_notify is sent, or in out
	finQueued bool // the raw output is to be ended after out
	lost      bool // the raw socket is gone
	hard      bool // the peer is to be reset
	eof       bool // the raw input has ended before all of it was dealt with, and the socket lingers

	owed int   // bytes of data that would make up for the records without any
	err  error // what crypto/tls says of the input, to be told after Resume

	in   []byte // ciphertext that waits: for the rest of its record, for Resume, or for the coroutine
	cur  []byte // ciphertext that crypto/tls is given
	left int    // how much of cur belongs to the record it is at

	out  []byte // ciphertext that the raw socket has not taken
	sent int    // how much of out it has

	chunks []chunk // the plaintext in out

	local, remote net.Addr
}

// A chunk is plaintext in Conn.out.
type chunk struct {
	end   int // where its ciphertext ends
	plain int // bytes
}

// Config says what a Conn is.
type Config struct {
	TLS           *tls.Config
	Client        bool     // the client's end
	Local, Remote net.Addr // for the hooks in TLS
}

// New makes the Conn of a raw socket. The socket's events go to its methods Readable, Writable and
// Closed from now on. A client's handshake begins with Start.
func New(l *Loop, cfg Config, sock engine.Socket, host Host) *Conn {
	c := &Conn{loop: l, sock: sock, host: host, local: cfg.Local, remote: cfg.Remote}
	c.hs = newHandshake(c, cfg)
	l.handshakes[c] = struct{}{}
	return c
}

// State returns what the handshake has settled. It may be called from Host.Opened on, by any
// goroutine.
func (c *Conn) State() tls.ConnectionState { return c.tls.ConnectionState() }

// Partial reports whether a record has begun that is not whole.
func (c *Conn) Partial() bool { return c.state == open && !c.paused && !c.resting && len(c.in) > 0 }

// Readable implements engine.Sink.
func (c *Conn) Readable(p []byte) {
	switch c.state {
	case handshaking:
		c.handshakeInput(p)
	case open:
		if c.paused || c.resting {
			c.hold(p)
		} else {
			c.receive(p)
		}
	}
}

// Writable implements engine.Sink.
func (c *Conn) Writable() {
	c.armed = false
	if c.state == closed {
		return
	}
	if c.sinkWaits {
		c.sinkWaits = false
		c.sink.Writable() // writes, which sends what is in out first
	}
	if c.state != closed && !c.armed {
		c.flush()
	}
}

// Closed implements engine.Sink.
func (c *Conn) Closed(err error) {
	switch c.state {
	case handshaking:
		c.handshakeCut(err)
	case open:
		c.openCut(err)
	case ended:
		if c.lingers && err == io.EOF && c.sock.Linger() {
			return
		}
		c.lost = true
		if c.sinkWaits { // nothing else tells it; writing fails
			c.sinkWaits = false
			c.sink.Writable()
		}
	}
}

// openCut is told that the raw input of an open connection has ended. Plaintext that was held until
// now comes before that: if the sink has paused, or does so within it, the end waits for Resume.
func (c *Conn) openCut(err error) {
	c.resting, c.final = false, true
	if err == io.EOF && (c.paused || wholeRecords(c.in) > 0) && c.sock.Linger() {
		c.eof = true
	}
	if !c.paused {
		c.resumed()
	}
	switch {
	case c.eof:
	case c.state == open:
		c.lost = true
		c.cut(unexpected(err))
	default:
		c.Closed(err)
	}
}

// cut ends an open connection without a word, as the peer has.
func (c *Conn) cut(err error) {
	sock, gone := c.sock, c.lost
	c.lost = true
	c.close()
	if !gone {
		sock.Close(false) // what was sent still arrives
	}
	c.sink.Closed(err)
}

// unexpected returns the reason for an end without close_notify: somebody may have cut the stream,
// so it is never io.EOF. crypto/tls says so only within a record.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Pending implements engine.Socket.
func (c *Conn) Pending() bool {
	return c.state == open && wholeRecords(c.in) > 0 || !c.lost && !c.eof && c.sock.Pending()
}

// Unsent implements engine.Socket.
func (c *Conn) Unsent() int {
	if c.lost {
		return -1
	}
	return c.sock.Unsent()
}

// Pause implements engine.Socket.
func (c *Conn) Pause() error {
	if c.state != open {
		return nil
	}
	if c.resting || c.eof { // so the socket is paused, or has no more
		c.paused = true
		return nil
	}
	err := c.sock.Pause()
	c.paused = err == nil
	return err
}

// Resume implements engine.Socket.
func (c *Conn) Resume() {
	if !c.paused {
		return
	}
	if c.paused = false; c.resting {
		return
	}
	if !c.eof {
		c.sock.Resume()
	}
	if (len(c.in) > 0 || c.err != nil || c.eof) && !c.resuming {
		c.resuming = true
		_ = c.loop.post(c.resumed)
	}
}

// resumed decrypts what was held.
func (c *Conn) resumed() {
	c.resuming = false
	c.goOnReading()
}

func (c *Conn) goOnReading() {
	if c.state == open && !c.paused && !c.resting && len(c.in) > 0 {
		c.receive(nil)
	}
	if c.state != open || c.paused || c.resting {
		return
	}
	if c.err != nil {
		c.inputEnded(c.err)
	} else if c.eof {
		c.cut(io.ErrUnexpectedEOF)
	} else if r, ok := c.sink.(Rester); ok {
		r.Rested()
	}
}

// Raw returns the socket below.
func (c *Conn) Raw() engine.Socket { return c.sock }

// Divert implements engine.Socket.
func (c *Conn) Divert(to engine.Sink) { c.sink = to }

// Linger implements engine.Socket. After close_notify the raw socket is still there.
func (c *Conn) Linger() bool {
	c.lingers = c.state == ended
	return c.lingers
}

// CloseWrite implements engine.Socket: close_notify, and after it the end of the raw stream.
func (c *Conn) CloseWrite() {
	if c.state == closed || c.lost {
		return
	}
	c.sendCloseNotify()
	c.finQueued = true
	c.flush()
}

func (c *Conn) sendCloseNotify() {
	if !c.shut {
		c.shut = true
		var err error
		defer c.rescue(&err)
		_ = c.tls.CloseWrite() // it writes to us, which does not fail
	}
}

// Close implements engine.Socket. If it is not hard the peer is told by close_notify that this is
// the end.
func (c *Conn) Close(hard bool) {
	if c.state == closed {
		return
	}
	if !hard && !c.lost && (c.state == open || c.state == ended) && len(c.chunks) == 0 {
		c.sendCloseNotify()
		_, _, _ = c.pushOut() // as far as it goes
	}
	sock, gone := c.sock, c.lost
	c.close()
	if !gone {
		sock.Close(hard)
	}
}

// close gives back what c holds. The raw socket is closed by the caller, if it is not gone.
func (c *Conn) close() {
	c.state = closed
	c.release(&c.in)
	c.release(&c.out)
	c.cur, c.chunks, c.resting = nil, nil, false
}

func (c *Conn) release(b *[]byte) {
	if *b != nil {
		c.loop.put(*b)
		*b = nil
	}
}

// discard ends the connection after the last alert.
func (c *Conn) discard() {
	if c.state == closed || c.lost {
		c.close()
		return
	}
	if c.flush(); c.hard || c.lost || c.eof || len(c.out) > 0 {
		c.shut = true // an alert was the last word
		c.Close(c.hard)
		return
	}
	sock, paused := c.sock, c.paused || c.resting
	c.close()
	c.loop.cfg.Linger(sock, paused)
}
