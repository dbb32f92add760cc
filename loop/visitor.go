package loop

import (
	"io"
	"net"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// hastyFarewell is how long an acceptor may take to write a farewell. A new socket takes it at
// once.
const hastyFarewell = time.Millisecond

// A visitor is an accepted connection that belongs to no loop yet: of package net, or of an engine
// that accepts by itself.
type visitor struct {
	net.Conn // nil: own
	own      engine.Newcomer
}

// own has the engine accept, if it can. A listener with options of its own, or from outside, is
// accepted by package net.
func (ln *listener) acceptOwn() {
	if a, ok := ln.server.engine.(engine.Acceptor); ok && !ln.foreign && !ln.tcp.Delay {
		ln.own = a.Accepting(ln.net)
	}
}

// next waits for a visitor.
func (ln *listener) next() (v visitor, err error) {
	if ln.own != nil {
		v.own, err = ln.own.Accept()
	} else {
		v.Conn, err = ln.net.Accept()
	}
	return v, err
}

func (v visitor) RemoteAddr() net.Addr {
	if v.own != nil {
		return v.own.RemoteAddr()
	}
	return v.Conn.RemoteAddr()
}

func (v visitor) LocalAddr() net.Addr {
	if v.own != nil {
		return v.own.LocalAddr()
	}
	return v.Conn.LocalAddr()
}

// reset ends it at once.
func (v visitor) reset() {
	if v.own != nil {
		v.own.Close()
		return
	}
	if t, ok := v.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = v.Conn.Close()
}

// refuse sends the farewell to a connection that must not come in, or resets it. A client that
// waits for TLS could not read a farewell.
func (ln *listener) refuse(v visitor, reason error) {
	s := ln.server
	s.refused.Add(1)
	s.logRefusal(reason, v.RemoteAddr())
	if len(s.Farewell) == 0 || ln.tls != nil {
		v.reset()
		return
	}
	nc := v.Conn
	if v.own != nil {
		var err error
		if nc, err = v.own.Net(); err != nil {
			return
		}
	}
	s.sayFarewell(nc)
}

// sayFarewell sends the farewell and lingers on a goroutine, for the reasons that a lingering has.
// The acceptor must not wait for a peer that does not read. In a flood some linger only: each has a
// descriptor and a goroutine meanwhile. The others have the time that a new socket needs.
func (s *Server) sayFarewell(nc net.Conn) {
	select {
	case s.farewells <- struct{}{}:
		s.newcomers.Go(func() {
			s.writeFarewell(nc, lingerTimeout)
			if half, ok := nc.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				_, _ = io.CopyN(io.Discard, nc, lingerBytes)
			}
			_ = nc.Close()
			<-s.farewells
		})
	default:
		s.writeFarewell(nc, hastyFarewell)
		_ = nc.Close()
	}
}

// writeFarewell leaves nc with a deadline, which is d from now on.
func (s *Server) writeFarewell(nc net.Conn, d time.Duration) {
	_ = nc.SetDeadline(time.Now().Add(d))
	_, _ = nc.Write(s.Farewell)
}
