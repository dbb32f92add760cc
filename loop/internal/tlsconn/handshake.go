package tlsconn

import (
	"container/list"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// maxEarly is how much may arrive beside a coroutine that computes before the socket is paused.
	maxEarly = 64 << 10

	// patience is how often a handshake that computes is looked at in which code of the user's may
	// be called.
	patience = 100 * time.Millisecond
)

// internalError is the alert by which crypto/tls refuses messages that are too long.
var internalError = []byte{21, 3, 1, 0, 2, 2, 80}

var (
	// ErrNoInput is why a connection failed whose peer has ended it before its first byte, as
	// health checks do. It does not count as a handshake that failed.
	ErrNoInput = errors.New("the peer ended the connection before its first byte")

	errHelloTooLong = errors.New("tls: a ClientHello of more than 64 KiB")
	errGoexit       = errors.New("tls: a hook of the tls.Config called runtime.Goexit")
)

// A handshake is what a Conn needs until it is open. While the coroutine computes beside the loop,
// the input it was given and the output it makes belong to it.
type handshake struct {
	conn   *Conn
	ctx    context.Context // ends with the handshake, for hooks that wait for something
	cancel context.CancelFunc
	co     *coroutine  // nil before it has begun, and after its end
	err    error       // why it ended
	over   bool        // it has ended
	out    []byte      // what it has written since it last waited
	dead   bool        // whoever waits for input gets none
	gone   atomic.Bool // nobody wants the result

	input   []byte // what it was given
	turn    turn
	unwatch func() // not nil: it is being watched

	begun   bool
	fed     bool // it has been given the header of its first record
	working bool // as far as the loop knows: the coroutine computes beside it, or is about to
	quick   bool // what comes next is cheap enough for the loop
	plain   bool // no hook of the user's can be called after the ServerHello of TLS 1.3
	waits   bool // a hook of the user's may look at ctx
	foreign bool // code of the user's may be called: by hooks, or as a private key

	parked *list.Element // not nil: it waits for its peer
}

func newHandshake(c *Conn, cfg Config) *handshake {
	h := &handshake{conn: c}
	t := cfg.TLS
	h.waits = t.GetCertificate != nil || t.GetConfigForClient != nil || t.GetClientCertificate != nil ||
		t.GetEncryptedClientHelloKeys != nil
	h.foreign = h.waits || t.VerifyPeerCertificate != nil || t.VerifyConnection != nil || t.WrapSession != nil ||
		t.UnwrapSession != nil || t.KeyLogWriter != nil || t.Rand != nil || t.Time != nil ||
		foreignCache(t.ClientSessionCache) || slices.ContainsFunc(t.Certificates, foreignKey)
	if cfg.Client {
		c.tls = tls.Client((*transport)(c), t)
		return h
	}
	h.plain = t.ClientAuth == tls.NoClientCert && t.VerifyConnection == nil &&
		t.GetConfigForClient == nil && t.WrapSession == nil
	c.tls = tls.Server((*transport)(c), t)
	return h
}

// ownCache is the type of Go's own session cache, which only looks into a map.
var ownCache = reflect.TypeOf(tls.NewLRUClientSessionCache(1))

// foreignCache reports whether a session cache is the user's.
func foreignCache(c tls.ClientSessionCache) bool { return c != nil && reflect.TypeOf(c) != ownCache }

// foreignKey reports whether a certificate's key is not one of Go's own.
func foreignKey(c tls.Certificate) bool {
	switch c.PrivateKey.(type) {
	case *ecdsa.PrivateKey, *rsa.PrivateKey, ed25519.PrivateKey:
		return false
	}
	return true
}

// Start begins a client's handshake.
func (c *Conn) Start() {
	if c.state == handshaking && !c.hs.begun {
		c.work(0)
	}
}

// Abort fails the handshake with err, if it is not done. Hard: the peer is reset, and gets no
// alert.
func (c *Conn) Abort(err error, hard bool) {
	if c.state == handshaking {
		c.hard = hard
		c.fail(err)
	}
}

// handshakeInput collects input until there is enough to go on with.
func (c *Conn) handshakeInput(p []byte) {
	if !c.hs.begun && len(c.in)+len(p) > maxHello && helloReady(c.in) == 0 {
		keep := maxHello - len(c.in)
		c.hold(p[:keep])
		if helloReady(c.in) == 0 {
			c.queue(internalError)
			c.fail(errHelloTooLong)
			return
		}
		p = p[keep:]
	}
	c.hold(p)
	if c.hs.working {
		if len(c.in) > maxEarly && !c.paused {
			c.paused = c.sock.Pause() == nil
		}
		return
	}
	c.goOn()
}

// goOn continues the handshake, if there is input for that.
func (c *Conn) goOn() {
	h := c.hs
	n := 0
	if h.begun {
		n = handshakeReady(c.in)
	} else if n = helloReady(c.in); n > 0 {
		n = c.splitHello(n)
	}
	if n > 0 {
		c.work(n)
	}
}

// work has the coroutine go on with n bytes of input: while the loop waits, or beside it.
func (c *Conn) work(n int) {
	h := c.hs
	h.begin()
	c.loop.unpark(h)
	input := c.in
	c.in = nil
	if rest := input[n:]; len(rest) > 0 {
		c.in = append(c.loop.get(len(rest)), rest...)
	}
	c.cur, c.left = input[:n], 0
	h.input = input
	if h.quick {
		h.step()
		c.stepped()
		return
	}
	h.working = true
	h.co.beside = h.worked
	if h.foreign {
		h.watch()
	}
	c.loop.cfg.Workers.start(h)
}

// begin makes the coroutine.
func (h *handshake) begin() {
	if h.begun {
		return
	}
	h.begun = true
	h.ctx, h.cancel = context.Background(), func() {}
	if h.waits { // one that can end costs crypto/tls more
		h.ctx, h.cancel = context.WithCancel(h.ctx)
	}
	h.co = newCoroutine(h.run)
}

// worked is called on the coroutine when it is done with what the loop did not wait for.
func (h *handshake) worked() {
	l, co := h.conn.loop, h.co
	l.cfg.Workers.done(h)
	if !l.post(h.conn.stepped) {
		h.cancel()
		co.stop() // nobody else will
	}
}

// watch looks at a handshake that computes beside the loop, as long as it does: the user's code may
// take its time.
func (h *handshake) watch() {
	l := h.conn.loop
	h.unwatch = l.after(patience, func() {
		if h.unwatch = nil; l.cfg.Workers.look(h) {
			h.watch()
		}
	})
}

// leaveAlone ends watch.
func (h *handshake) leaveAlone() {
	if h.unwatch != nil {
		h.unwatch()
		h.unwatch = nil
	}
}

// run is what the coroutine does.
func (h *handshake) run() {
	defer func() {
		h.over = true
		if v := recover(); v != nil {
			h.err = h.conn.loop.cfg.Panicked(v)
		}
	}()
	if h.gone.Load() {
		h.err = net.ErrClosed
		return
	}
	h.err = errGoexit
	h.err = h.conn.tls.HandshakeContext(h.ctx)
}

// step runs the coroutine until it waits for input, or ends.
func (h *handshake) step() { h.co.next() }

// wait is called within the coroutine: it suspends it until there is input. False: there will be
// none. Nobody comes back to one that is dead.
func (h *handshake) wait() bool {
	return !h.dead && h.co.wait() && !h.dead && !h.gone.Load()
}

// stepped goes on, on the loop, when the coroutine waits or has ended.
func (c *Conn) stepped() {
	h := c.hs
	input := h.input
	h.working, h.input = false, nil
	h.leaveAlone()
	if c.state != handshaking { // aborted meanwhile
		h.end()
		c.hs = nil
		return
	}
	if len(c.cur) > 0 { // what came right after Finished
		rest := append(append(c.loop.get(len(c.cur)+len(c.in)), c.cur...), c.in...)
		c.release(&c.in)
		c.in, c.cur, c.left = rest, nil, 0
	}
	if input != nil {
		c.loop.put(input)
	}
	h.quick = h.quick || h.plain && sealed(h.out)
	c.handOut()
	if h.over && h.err != nil {
		c.fail(h.err)
		return
	}
	c.flush()
	switch {
	case c.lost:
		c.fail(net.ErrClosed)
	case h.over:
		c.establish()
	default:
		c.park()
	}
}

// handOut sends what the handshake has written.
func (c *Conn) handOut() {
	out := c.hs.out
	c.hs.out = out[:0]
	if len(out) > 0 && len(c.out) == 0 && !c.lost {
		n, _ := c.sock.Write(out) // of an error reading will tell
		out = out[n:]
	}
	c.queue(out)
}

// park waits for the peer.
func (c *Conn) park() {
	l := c.loop
	c.hs.parked = l.parked.PushBack(c.hs)
	if c.unpause(); handshakeReady(c.in) > 0 {
		c.goOn()
		return
	}
	if c.eof {
		c.fail(io.ErrUnexpectedEOF)
		return
	}
	if l.parked.Len() > l.cfg.MaxParked {
		l.parked.Front().Value.(*handshake).conn.fail(ErrTooManyHandshakes)
	}
}

// unpause reads again after too much input came too early.
func (c *Conn) unpause() {
	if c.paused {
		c.paused = false
		c.sock.Resume()
	}
}

// establish opens the connection.
func (c *Conn) establish() {
	c.unpause()
	c.hs.end()
	delete(c.loop.handshakes, c)
	c.loop.counts.Done++
	c.state, c.hs, c.owed = open, nil, 0
	host := c.host
	c.host = nil
	if sink := host.Opened(c); c.sink == nil { // otherwise Divert was called
		c.sink = sink
	}
	if c.sink == nil {
		c.Close(false)
		return
	}
	c.goOnReading()
}

// handshakeCut is told that the raw input has ended. While the coroutine computes, that may be
// after the rest of the handshake and all that the peer had to say.
func (c *Conn) handshakeCut(err error) {
	if err == io.EOF && c.hs.working && c.sock.Linger() {
		c.eof, c.final = true, true
		return
	}
	c.lost = true
	if !c.hs.begun && len(c.in) == 0 {
		c.abandon(fmt.Errorf("%w: %w", ErrNoInput, unexpected(err)))
		return
	}
	c.fail(unexpected(err))
}

// end ends the coroutine's part. It may be the handshake that ends by that.
func (h *handshake) end() {
	if !h.begun {
		return
	}
	h.cancel()
	h.leaveAlone()
	if h.dead = true; !h.over {
		h.conn.cur = nil // it may not have begun, and is not to compute any more
		h.step()
	}
	h.co, h.out = nil, nil
}

// fail ends a connection that was not open yet.
func (c *Conn) fail(err error) {
	c.loop.counts.Failed++
	c.abandon(err)
}

// abandon is fail for a handshake that does not count.
func (c *Conn) abandon(err error) {
	h := c.hs
	delete(c.loop.handshakes, c)
	c.loop.unpark(h)
	c.state = ended
	if h.working { // nobody wants what it comes to; stepped ends it
		h.gone.Store(true)
		h.cancel()
		sock := c.sock
		if !c.lost {
			sock.Close(true)
		}
		c.state = closed
		c.release(&c.in)
	} else {
		c.hs = nil
		h.end()
		c.discard()
	}
	c.host.Failed(c.loop.explain(err))
}
