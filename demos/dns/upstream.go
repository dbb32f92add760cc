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

// tcpIdle is how long a TCP connection to an upstream stays that nothing comes from (RFC 7766,
// section 6.2.3).
const tcpIdle = 10 * time.Second

// An upstream is one loop's way to a server that is asked.
type upstream struct {
	conn  *loop.Conn             // nil: there is none now
	calls *handler.Calls[[]byte] // over conn
	asked map[uint16]*query      // what is under way there, by id
}

// newUpstream keeps a UDP session to addr.
func newUpstream(l *loop.Loop, addr string, timeout time.Duration) *upstream {
	u := &upstream{}
	r := handler.Redial{
		Dialer: loop.Dialer{Timeout: timeout},
		Addr:   "udp://" + addr,
		Open:   u.open,
		Max:    time.Second,
	}
	r.Start(l)
	return u
}

func (u *upstream) open(c *loop.Conn) loop.Handler {
	c.AfterClose(func(error) { u.conn = nil }) // before the calls fail: those who ask again then ask elsewhere
	u.conn, u.asked = c, make(map[uint16]*query)
	u.calls = handler.NewCalls[[]byte](c, handler.CallLimits{IDBits: 16, Max: maxAsked})
	return loop.HandlerFunc(u.answered)
}

// answered takes whatever comes. What nobody asked for is dropped: who guesses an id must know the
// question as well, and does not keep the answer from coming (RFC 5452, section 9.1).
func (u *upstream) answered(_ *loop.Conn, msg []byte) error {
	if len(msg) < headerLen {
		return nil
	}
	id := binary.BigEndian.Uint16(msg)
	if q := u.asked[id]; q != nil && answers(msg, q.question) {
		u.calls.Answer(uint64(id), msg)
	}
	return nil
}

// ask sends q under a random id, as an attacker must not be able to guess it (RFC 5452). msg is
// borrowed, and has a header. plain is without EDNS.
func (u *upstream) ask(q *query, plain bool, timeout time.Duration, done func(msg []byte, err error)) error {
	if u.conn == nil {
		return handler.ErrAway
	}
	id, asked := uint16(rand.Uint32()), u.asked
	for asked[id] != nil {
		id = uint16(rand.Uint32())
	}
	err := u.calls.BeginAs(uint64(id), timeout, func(msg []byte, err error) {
		delete(asked, id)
		done(msg, err)
	})
	if err != nil {
		return err
	}
	if err := u.conn.Send(upstreamQuery(q, id, plain)); err != nil {
		u.calls.Cancel(uint64(id))
		return err
	}
	asked[id] = q
	return nil
}

// A tcpUpstream has a connection only while it is asked something.
type tcpUpstream struct {
	upstream
	loop    *loop.Loop
	dialer  loop.Dialer
	addr    string
	dialing bool
	wait    []func() // for the end of that
}

func newTCPUpstream(l *loop.Loop, addr string, timeout time.Duration) *tcpUpstream {
	d := loop.Dialer{Codec: codec.Length{Size: 2}, Timeout: timeout, IdleTimeout: tcpIdle + timeout}
	return &tcpUpstream{loop: l, dialer: d, addr: "tcp://" + addr}
}

// whenOpen has f called when there is a connection, or none could be made.
func (u *tcpUpstream) whenOpen(f func()) {
	if u.conn != nil {
		f()
		return
	}
	if u.wait = append(u.wait, f); !u.dialing {
		u.dialing = true
		u.dialer.Dial(u.loop, u.addr, u.opened)
	}
}

func (u *tcpUpstream) opened(c *loop.Conn, err error) (h loop.Handler) {
	if err == nil {
		h = u.open(c)
	}
	wait := u.wait
	u.wait, u.dialing = nil, false
	for _, f := range wait {
		f()
	}
	return h
}
