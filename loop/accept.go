package loop

import (
	"net"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// open makes the Conn of a socket that was enrolled in l and asks Accept. nil: refused.
func (l *Loop) open(ln *listener, sock engine.Socket, id uint64, local, remote net.Addr) engine.Sink {
	l.enter()
	c := l.begin(ln, sock, id, local, remote)
	l.leave()
	if c == nil {
		return nil
	}
	return (*sink)(c)
}

// begin is open within a turn.
func (l *Loop) begin(ln *listener, sock engine.Socket, id uint64, local, remote net.Addr) *Conn {
	c := &Conn{loop: l, sock: sock, id: id, local: local, remote: remote}
	c.idle.opened, c.idle.lastRead, c.idle.lastWrite = l.now, notYet, notYet
	if !l.draining && c.accept(ln) {
		l.add(c)
		return c
	}
	if c.refuse(); c.at() != stateLingering {
		return nil
	}
	return c
}

// accept reports whether c has a handler now. A panic refuses, too.
func (c *Conn) accept(ln *listener) bool {
	l := c.loop
	l.current = c
	returned := false
	defer func() {
		if returned {
			return
		}
		c.handler = nil
		if v := recover(); v != nil {
			_ = l.panicked(v)
		} else {
			l.exited()
		}
	}()
	c.in.decoder.Init(ln.codec, &l.store.Pool)
	c.checkReplies()
	if ln.idleTimeout > 0 || l.server.FirstByteTimeout > 0 {
		c.setIdleTimeout(ln.idleTimeout)
	}
	if c.handler = ln.accept(c); isNilFunc(c.handler) {
		panic("loop: Accept returned a nil HandlerFunc: to refuse a connection return nil")
	}
	returned = true
	if c.handler != nil && c.at() == stateOpening {
		c.enter(stateOpen)
	}
	return c.handler != nil
}

// refuse undoes what Accept did with a connection that it did not want in the end. A farewell is tried
// once, and then as after a close the peer's end is waited for, in which case the engine gets a Sink.
func (c *Conn) refuse() {
	l := c.loop
	l.count.refused++
	l.rare = true
	if !c.isClosing() {
		c.beginEnd()
	}
	c.writeOut()
	c.releaseOutput()
	l.wheel.Stop(c.more().retries.timer)
	if !c.hasWritten() || c.extras.ending.drop {
		c.sock = nil // the engine closes it
	}
	c.letGo(false)
	c.runAfter()
	c.forget()
}

// checkReplies notes whether the codec has something to say by itself.
func (c *Conn) checkReplies() { _, c.in.replies = c.in.decoder.Codec().(codec.Responder) }
