package main

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// maxAsked is how many questions an upstream has at once: few, as there are 65,536 ids, and who
// guesses answers hits one of these.
const maxAsked = 4096

// An upstream is one loop's connection to a server that is asked.
type upstream struct {
	link  *handler.Link
	calls *handler.Calls[[]byte] // of the connection that there is
	wait  []func()               // for one, or for an attempt to make one that has failed
}

// newUpstream keeps a UDP session, or a TCP connection, to addr.
func newUpstream(l *loop.Loop, network, addr string, timeout time.Duration) *upstream {
	u := &upstream{}
	r := handler.Redial{
		Dialer: loop.Dialer{Codec: codec.Length{Size: 2}, Timeout: timeout},
		Addr:   network + "://" + addr,
		Open:   u.open,
		State:  u.changed,
		Max:    time.Second,
	}
	u.link = r.Start(l)
	return u
}

func (u *upstream) open(c *loop.Conn) loop.Handler {
	u.calls = handler.NewCalls[[]byte](c, handler.CallLimits{IDBits: 16, Max: maxAsked})
	return loop.HandlerFunc(u.answered)
}

// changed calls those who wait, whether there is a connection now or not.
func (u *upstream) changed(*loop.Conn, error) {
	wait := u.wait
	u.wait = nil
	for _, f := range wait {
		f()
	}
}

// whenOpen has f called when there is a connection, or none could be made.
func (u *upstream) whenOpen(f func()) {
	if u.link.Conn() != nil {
		f()
		return
	}
	u.wait = append(u.wait, f)
}

// answered takes whatever comes. What nobody asked for is dropped.
func (u *upstream) answered(_ *loop.Conn, msg []byte) error {
	if len(msg) >= headerLen {
		u.calls.Answer(uint64(binary.BigEndian.Uint16(msg)), msg)
	}
	return nil
}

// ask sends q under a random id, as an attacker must not be able to guess it (RFC 5452). msg is
// borrowed. plain is without EDNS.
func (u *upstream) ask(q *query, plain bool, timeout time.Duration, done func(msg []byte, err error)) error {
	c := u.link.Conn()
	if c == nil {
		return handler.ErrAway
	}
	for {
		id := uint16(rand.Uint32())
		switch err := u.calls.BeginAs(uint64(id), timeout, done); err {
		case nil:
			if err := c.Send(upstreamQuery(q, id, plain)); err != nil {
				u.calls.Cancel(uint64(id))
				return err
			}
			return nil
		case handler.ErrCallID:
		default:
			return err
		}
	}
}
