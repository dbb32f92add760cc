package loop

import (
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// This file is where the engine calls package loop: a link, which has a stage.

// A link is a Conn as its socket sees it: the one engine.Sink of this package. It gets all that the
// engine reports of the socket, from the turn in which that reaches the loop until it is closed,
// and makes a turn of each report. The stage says who gets it.
//
// It is the Host of a layer of TLS as well, which then is c.sock, and gets the reports of the raw
// socket from the link.
type link Conn

// A stage is what the reports of a socket mean at present.
type stage uint8

const (
	plainInput       stage = iota // input of the connection
	tlsInput                      // input of c.sock, which is a layer of TLS, or was one until it ended
	awaitsHeader                  // the beginning of a PROXY header
	awaitsFirstBytes              // input of the connection, unless a PROXY header begins with it
	lingers                       // nothing, until the peer ends: see lingering
	passedOn                      // as the stage of the Conn that has the socket now: see Conn.passOn
	datagrams                     // there are none: c is a session of UDP
)

// owner returns the Conn that has the socket.
func (k *link) owner() *Conn {
	c := (*Conn)(k)
	if c.stage == passedOn {
		c = c.extras.successor
	}
	return c
}

// link returns the link of c's socket.
func (c *Conn) link() *link {
	if c.extras != nil && c.extras.inheritedLink != nil {
		return c.extras.inheritedLink
	}
	return (*link)(c)
}

// tlsLayer returns the layer of TLS between c and the socket, or nil.
func (c *Conn) tlsLayer() *tlsconn.Conn {
	sock := c.sock
	if c.stage == lingers {
		if g := c.loop.lingering[c]; g != nil {
			sock = g.sock
		}
	}
	t, _ := sock.(*tlsconn.Conn)
	return t
}

// Readable implements engine.Sink. Plain input, which is what most sockets have, comes first.
func (k *link) Readable(p []byte) {
	if c := (*Conn)(k); c.stage == plainInput {
		c.received(p)
	} else {
		k.readable(p)
	}
}

// readable is Readable for the other stages. Records that are not whole are signs of life, too.
func (k *link) readable(p []byte) {
	c := k.owner()
	c.loop.enter()
	switch t := c.tlsLayer(); {
	case t != nil:
		c.idle.lastRead = c.loop.now
		t.Readable(p)
		k.owner().watchRecord()
	case c.stage == awaitsHeader:
		c.receivedHeader(p)
	case c.stage == awaitsFirstBytes:
		c.receivedFirstBytes(p)
	default:
		k.Plaintext(p)
	}
	c.loop.leave()
}

// Room implements engine.Sink.
func (k *link) Room(p []byte) int {
	c := k.owner()
	if t := c.tlsLayer(); t != nil {
		return t.Room(p)
	} else if c.stage == plainInput {
		return c.room(p)
	}
	return 0
}

// Writable implements engine.Sink.
func (k *link) Writable() {
	c := k.owner()
	c.loop.enter()
	if t := c.tlsLayer(); t != nil {
		t.Writable()
	} else {
		k.PlaintextWritable()
	}
	c.loop.leave()
}

// Ended implements engine.Sink.
func (k *link) Ended(err error) {
	c := k.owner()
	c.loop.enter()
	switch t := c.tlsLayer(); {
	case t != nil:
		t.Ended(err)
	case c.stage == awaitsHeader:
		c.headerEnded(err)
	default:
		k.PlaintextEnded(err)
	}
	c.loop.leave()
}

// HandshakeDone implements tlsconn.Host.
func (k *link) HandshakeDone() {
	c := k.owner()
	if c.tlsStart() != nil {
		c.startedTLS()
	} else if a := c.loop.arrivals[c]; a.dialing != nil && a.dialing.endIfLate() {
		c.sock.Close()
	} else {
		a.arrived()
	}
}

// HandshakeFailed implements tlsconn.Host. The layer has closed the raw socket, or makes it linger.
func (k *link) HandshakeFailed(err error) {
	c := k.owner()
	if c.tlsStart() != nil && !c.isClosed() {
		c.abort(err) // output that waits for the handshake is not worth flushing
	} else if a := c.loop.arrivals[c]; a != nil { // otherwise it was aborted
		a.failed(err)
	}
}

// Plaintext implements tlsconn.Host, and is what Readable does where there is no TLS.
func (k *link) Plaintext(p []byte) {
	if c := k.owner(); c.stage == lingers {
		c.discardLingering(p)
	} else {
		c.received(p)
	}
}

// PlaintextRoom implements tlsconn.Host.
func (k *link) PlaintextRoom() int { return k.owner().room(nil) }

// PlaintextWritable implements tlsconn.Host, and is what Writable does where there is no TLS.
func (k *link) PlaintextWritable() {
	switch c := k.owner(); c.stage {
	case lingers:
		c.loop.lingering[c].write()
	default:
		c.writable()
	}
}

// PlaintextEnded implements tlsconn.Host, and is what Ended does where there is no TLS.
func (k *link) PlaintextEnded(err error) {
	if c := k.owner(); c.stage == lingers {
		c.endLinger(true)
	} else {
		c.socketEnded(err)
	}
}

// RunLater implements tlsconn.Host.
func (k *link) RunLater() { k.owner().loop.runSoon(waitingRecords{k}) }

// waitingRecords is a runnable: a layer of TLS with records that wait to be decrypted.
type waitingRecords struct{ *link }

func (w waitingRecords) Run() {
	c := w.owner()
	if t := c.tlsLayer(); t != nil {
		t.GoOn()
		c.watchRecord()
	}
}

// DrainAndClose implements tlsconn.Host.
func (k *link) DrainAndClose(raw engine.Socket, paused bool) {
	c := k.owner()
	if lingerer := (slot{loop: c.loop}); lingerer.acquireLinger() {
		c.linger(raw, lingerer, nil, paused)
	} else {
		raw.Close()
	}
}
