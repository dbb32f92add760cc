package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// maxAsked is how many questions an upstream has at once from one loop: each has a socket.
const maxAsked = 1024

// tcpIdle is how long a TCP connection to an upstream stays that nothing comes from (RFC 7766,
// section 6.2.3).
const tcpIdle = 10 * time.Second

var (
	errTooMany   = errors.New("too many questions are under way at this upstream")
	errNoAnswer  = errors.New("the upstream has not answered in time")
	errOtherCase = errors.New("the upstream does not keep the case of names")
)

// An udpUpstream is one loop's way to a server that is asked by UDP. Each question has a socket of
// its own, so that its port is as hard to guess as its id (RFC 5452, section 9.2), and the case of
// its letters is drawn at random, which an answer has to repeat (draft-vixie-dnsext-dns0x20).
type udpUpstream struct {
	loop   *loop.Loop
	dialer loop.Dialer
	addr   string
	asked  int
}

func newUDPUpstream(l *loop.Loop, addr string, timeout time.Duration) *udpUpstream {
	return &udpUpstream{loop: l, dialer: loop.Dialer{Timeout: timeout}, addr: "udp://" + addr}
}

// ask sends q, and calls done once on the loop, never inline: with the answer, which is borrowed
// and has a header, or with what went wrong. plain is without EDNS.
func (u *udpUpstream) ask(q *query, plain bool, timeout time.Duration, done func(msg []byte, err error)) error {
	if u.asked >= maxAsked {
		return errTooMany
	}
	u.asked++
	a := &asking{up: u, done: done, id: uint16(rand.Uint32()), question: mixCase(q.question)}
	msg := upstreamQuery(q, a.question, a.id, plain)
	u.dialer.Dial(u.loop, u.addr, func(c *loop.Conn, err error) loop.Handler {
		if err == nil {
			err = c.Send(msg)
		}
		if err != nil {
			a.end(nil, err)
			return nil
		}
		c.AfterFunc(timeout, func() { c.CloseWithError(errNoAnswer) })
		return a
	})
	return nil
}

// An asking is the Handler of one question's socket.
type asking struct {
	up       *udpUpstream
	done     func(msg []byte, err error) // nil once it was called
	id       uint16
	question []byte // in the case that was sent
}

// OnMessage takes whatever comes. What does not answer the question is dropped, and does not keep
// the answer from coming (RFC 5452, section 9.1). An answer in another case may be a forged one, or
// that of a server which does not keep it: TCP tells.
func (a *asking) OnMessage(c *loop.Conn, msg []byte) error {
	if len(msg) < headerLen || binary.BigEndian.Uint16(msg) != a.id || !answers(msg, a.question) {
		return nil
	}
	if !isBare(msg) && !bytes.Equal(msg[headerLen:headerLen+len(a.question)], a.question) {
		a.end(nil, errOtherCase)
	} else {
		a.end(msg, nil)
	}
	c.Close()
	return nil
}

// OnClose tells why there is no answer, unless there was one.
func (a *asking) OnClose(_ *loop.Conn, err error) { a.end(nil, err) }

func (a *asking) end(msg []byte, err error) {
	if done := a.done; done != nil {
		a.done = nil
		a.up.asked--
		done(msg, err)
	}
}

// mixCase returns a question in which the case of each letter of the name is drawn at random.
func mixCase(question []byte) []byte {
	q := bytes.Clone(question)
	name := q[:len(q)-4]
	bits, left := uint64(0), 0
	for i, c := range name {
		if c|0x20 < 'a' || 'z' < c|0x20 {
			continue
		}
		if left == 0 {
			bits, left = rand.Uint64(), 64
		}
		name[i] = c ^ byte(bits&1)<<5
		bits, left = bits>>1, left-1
	}
	return q
}

// A tcpUpstream has a connection only while it is asked something.
type tcpUpstream struct {
	loop    *loop.Loop
	dialer  loop.Dialer
	addr    string
	conn    *loop.Conn             // nil: there is none now
	calls   *handler.Calls[[]byte] // over conn
	asked   map[uint16]*query      // what is under way there, by id
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

func (u *tcpUpstream) open(c *loop.Conn) loop.Handler {
	c.AfterClose(func(error) { u.conn = nil }) // before the calls fail: those who ask again then ask elsewhere
	u.conn, u.asked = c, make(map[uint16]*query)
	u.calls = handler.NewCalls[[]byte](c, handler.CallLimits{IDBits: 16, Max: maxAsked})
	return loop.HandlerFunc(u.answered)
}

// answered takes whatever comes. What nobody asked for is dropped.
func (u *tcpUpstream) answered(_ *loop.Conn, msg []byte) error {
	if len(msg) < headerLen {
		return nil
	}
	id := binary.BigEndian.Uint16(msg)
	if q := u.asked[id]; q != nil && answers(msg, q.question) {
		u.calls.Answer(uint64(id), msg)
	}
	return nil
}

// ask sends q under a random id. msg is borrowed, and has a header. plain is without EDNS.
func (u *tcpUpstream) ask(q *query, plain bool, timeout time.Duration, done func(msg []byte, err error)) error {
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
	if err := u.conn.Send(upstreamQuery(q, q.question, id, plain)); err != nil {
		u.calls.Cancel(uint64(id))
		return err
	}
	asked[id] = q
	return nil
}
