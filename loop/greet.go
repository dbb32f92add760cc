package loop

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/loopwheel/loopwheel/codec"
)

// openCodec begins the protocol of the codec, if it begins with something else than messages. The
// first words are made in a buffer of their own: user code may have a part in them, and send
// something meanwhile.
func (c *Conn) openCodec() {
	o, ok := c.in.decoder.Codec().(codec.Opener)
	if !ok || c.isClosing() || c.out.ended {
		return
	}
	c.callHook(func() { // a panic closes c: who dialled it must hear of that
		words, timeout, err := o.Open(nil, c.peer())
		if err != nil {
			c.shut(err)
			return
		}
		if len(words) > 0 && !c.isClosing() {
			c.appended(append(c.space(len(words)), words...))
		}
		if timeout > 0 {
			c.AfterFunc(timeout, func() {
				if err := o.Opening(); err != nil {
					c.shut(err)
				}
			})
		}
	})
}

// peer returns what the codec of c may know of its connection.
func (c *Conn) peer() codec.Peer {
	p := codec.Peer{Remote: c.RemoteAddr(), Local: c.LocalAddr()}
	if state, ok := c.TLS(); ok {
		p.TLS = &state
	} else if c.isTLS() {
		p.TLS = new(tls.ConnectionState) // the handshake of StartTLS is not done
	}
	return p
}

// accept is asked for the handler of what was dialled, as Server.Accept is for what was accepted.
// It is the user's, or if the codec has a handshake one that waits for that.
func (a *dialing) accept(c *Conn) Handler {
	if o, ok := c.in.decoder.Codec().(codec.Opener); ok && o.Opening() != nil {
		c.in.plain = opening
		a.stop = func() { c.shut(cmp.Or(a.cause, net.ErrClosed)) }
		return &dialOpening{a, o}
	}
	if !a.end() {
		return nil
	}
	return a.open(c, nil)
}

// A dialOpening is the handler of a connection that was dialled, until the handshake of its codec
// is done.
type dialOpening struct {
	*dialing
	opener codec.Opener
}

// lookAtHandshake gives c to who dialled it, if its handshake is done.
func (c *Conn) lookAtHandshake() {
	if o, ok := c.handler.(*dialOpening); ok && o.opener.Opening() == nil {
		o.handOver(c)
	}
}

// handOver asks the user for a handler, as accept does when there is no handshake. What panics is
// for the caller to rescue.
func (o *dialOpening) handOver(c *Conn) {
	c.handler = nil
	welcome := false
	defer func() {
		if !welcome {
			c.handler = refused{}
			c.shut(nil)
		}
	}()
	if o.end() {
		c.ask(func(c *Conn) Handler { return o.open(c, nil) })
		welcome = c.handler != nil
	}
	if welcome && c.in.plain == opening { // and not another codec's
		c.in.plain = asked
		o.tell(c)
	}
}

// tell has the codec know that the user has the connection.
func (o *dialOpening) tell(c *Conn) {
	if c.isOpen() {
		if err := o.opener.Opened(); err != nil {
			c.undecodable(err)
		}
	}
}

// OnMessage is for a codec that delivers messages, and says that its handshake is not done.
func (o *dialOpening) OnMessage(*Conn, []byte) error {
	return fmt.Errorf("%w: a message before the end of its handshake", codec.ErrContract)
}

// OnClose tells who dialled that there will be no connection.
func (o *dialOpening) OnClose(c *Conn, err error) {
	o.fail(o.wrap(cmp.Or(err, ErrClosed), c.ends.remote()))
}

// refused is the handler of a connection that nobody wanted in the end.
type refused struct{}

func (refused) OnMessage(*Conn, []byte) error { return nil }
func (refused) OnClose(*Conn, error)          {}
