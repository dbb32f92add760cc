package loop

import (
	"fmt"
	"net"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// open makes the Conn of a socket that was enrolled in l and asks Accept. nil: refused.
func (l *Loop) open(ln *listener, sock engine.Socket, id uint64, local, remote net.Addr) engine.Sink {
	l.enter()
	sink := l.openInTurn(ln, sock, id, local, remote)
	l.leave()
	return sink
}

// openInTurn is open within a turn.
func (l *Loop) openInTurn(ln *listener, sock engine.Socket, id uint64, local, remote net.Addr) engine.Sink {
	if ln.waits() {
		return l.arrive(ln, sock, id, local, remote)
	}
	c, welcome := l.begin(ln, sock, id, local, remote)
	if !welcome && c.at() != stateLingering {
		return nil
	}
	if s := c.tlsStart(); s != nil {
		return s.through(&turnSink{loop: l})
	}
	return (*sink)(c)
}

// begin is open within a turn.
func (l *Loop) begin(ln *listener, sock engine.Socket, id uint64, local, remote net.Addr) (*Conn, bool) {
	return l.beginNoted(ln, sock, id, local, remote, nil)
}

// beginNoted is begin for a connection of which a balancer has told more than the addresses.
func (l *Loop) beginNoted(ln *listener, sock engine.Socket, id uint64, local, remote net.Addr, notes []ProxyTLV) (c *Conn, welcome bool) {
	c = &Conn{loop: l, sock: sock, id: id, ends: l.endsOf(ln, local, remote)}
	if len(notes) > 0 {
		c.more().notes = notes
	}
	c.idle.opened, c.idle.lastRead, c.idle.lastWrite = l.now, notYet, notYet
	if ln.dials {
		c.more().dialed = ln.address
		c.idle.lastRead = l.now // FirstByteTimeout is for those that come to us
	}
	if s, ok := sock.(*udpSession); ok {
		s.c = c
	}
	if welcome = !l.draining && c.accept(ln); welcome {
		l.add(c)
	} else {
		c.refuse()
	}
	return c, welcome
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
	c.lookAtCodec()
	c.limitOpening()
	if ln.idleTimeout > 0 || l.server.FirstByteTimeout > 0 {
		c.setIdleTimeout(ln.idleTimeout)
	}
	c.greet()
	c.ask(ln.accept)
	returned = true
	if c.handler != nil && c.at() == stateOpening {
		c.enter(stateOpen)
	}
	return c.handler != nil
}

// ask has accept choose the handler: nil if it refuses.
func (c *Conn) ask(accept Accept) {
	if c.handler = accept(c); isTypedNil(c.handler) {
		panic(fmt.Sprintf("loop: Accept returned a nil %T: to refuse a connection return nil itself", c.handler))
	}
	if c.handler != nil && c.extras != nil && c.extras.pipe != nil {
		c.extras.pipe.takeOver()
	}
}

// refuse undoes what Accept did with a connection that it did not want in the end. A farewell is
// tried once, and then as after a close the peer's end is waited for, in which case the engine gets
// a Sink.
func (c *Conn) refuse() {
	l := c.loop
	if !c.isDialed() {
		l.count.refused++
		l.rare = true
	}
	if !c.isClosing() {
		c.beginEnd()
	}
	c.writeOut()
	c.releaseOutput()
	l.wheel.Stop(c.more().retries.timer)
	if !c.isUDP() && (!c.hasWritten() || c.extras.ending.drop) {
		c.sock = nil // the engine closes it
	}
	c.letGo(false)
	c.runAfter()
	c.forget()
}

// lookAtCodec notes whether frames can be found and made without the codec, or there is more to ask
// it.
func (c *Conn) lookAtCodec() {
	c.in.plain = int32(c.in.decoder.Plain())
	switch c.in.decoder.Codec().(type) {
	case codec.Responder, codec.Assembler:
		c.in.plain = asked
	}
}

// limitOpening gives the handshake of a codec its time.
func (c *Conn) limitOpening() {
	o, ok := c.in.decoder.Codec().(codec.Opener)
	if !ok {
		return
	}
	if d := o.Open(c.peer()); d > 0 {
		c.AfterFunc(d, func() {
			if err := o.Opening(); err != nil {
				c.shut(err)
			}
		})
	}
}
