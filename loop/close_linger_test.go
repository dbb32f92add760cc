package loop_test

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A close waits for the peer's end, and throws away what comes until then: for a second, or a
// mebibyte.
func TestLingerIsBounded(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		slow, much := srv.Open(), srv.Open()
		for _, p := range []*looptest.Peer{slow, much} {
			tell(srv, p, (*loop.Conn).Close)
		}
		_, _ = much.Write(make([]byte, 1<<20))
		if !slow.Lingers() || !much.Lingers() {
			t.Errorf("they wait for the peer's end: %v and, after a mebibyte, %v", slow.Lingers(), much.Lingers())
		}
		if much.Send("x"); much.Lingers() {
			t.Error("it takes more than a mebibyte")
		}
		srv.Sleep(990 * time.Millisecond)
		if !slow.Lingers() {
			t.Error("it does not wait for a second")
		}
		if srv.Sleep(20 * time.Millisecond); slow.Lingers() {
			t.Error("it waits for more than a second")
		}
	})
}

// After the alert of a handshake that has failed the peer's end is waited for in the same way, but
// not for more than 64 peers.
func TestAlertLingers(t *testing.T) {
	bubble(t, &loop.Server{TLS: &tls.Config{Certificates: []tls.Certificate{looptest.Certificate("localhost")}}}, func(t *testing.T, srv *looptest.Server) {
		first := srv.Open()
		first.Send("GET / HTTP/1.0\r\n\r\n")
		_, _ = first.Write(make([]byte, 1<<20))
		if !first.Lingers() {
			t.Error("the peer's end is not waited for")
		}
		if first.Send("x"); first.Lingers() {
			t.Error("it takes more than a mebibyte")
		}
		lingering := 0
		for range 70 {
			p := srv.Open()
			if p.Send("GET / HTTP/1.0\r\n\r\n"); p.Lingers() {
				lingering++
			}
		}
		if lingering != 64 {
			t.Errorf("%d linger", lingering)
		}
	})
}

// Who was evicted for silence is not waited for: that would be one more silence.
func TestEvictionDoesNotLinger(t *testing.T) {
	bubble(t, &loop.Server{IdleTimeout: time.Minute}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		srv.Sleep(time.Minute + 10*time.Millisecond)
		if !p.Ended() || p.Lingers() {
			t.Errorf("ended: %v; its end is waited for: %v", p.Ended(), p.Lingers())
		}
	})
}

// The end of a peer that was not read is seen after a close, too.
func TestLingerBehindAPause(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		tell(srv, p, (*loop.Conn).PauseRead)
		p.Send("not read", "nor this")
		tell(srv, p, (*loop.Conn).Close)
		if !p.Lingers() {
			t.Error("the peer's end is not waited for")
		}
		if p.Close(); p.Lingers() {
			t.Error("the peer's end is not seen")
		}
	})
}

// Behind CloseWrite there is nobody who could hear last words.
func TestNoLastWordsBehindCloseWrite(t *testing.T) {
	asked := 0
	srv := &loop.Server{Hooks: loop.Hooks{OnClosing: func(*loop.Conn, error) { asked++ }}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for i, f := range []func(c *loop.Conn){(*loop.Conn).Close, func(c *loop.Conn) { c.CloseWrite(); c.Close() }} {
			p := srv.Open()
			if tell(srv, p, f); asked != 1 || !p.Ended() {
				t.Errorf("%d: OnClosing was called %d times, want once, for the first; ended: %v", i, asked, p.Ended())
			}
		}
	})
}

// Who is held back goes on when half of HoldBackAt has gone, and not before.
func TestHeldBackUntilHalfHasGone(t *testing.T) {
	const high = 1000
	got := 0
	srv := &loop.Server{Limits: loop.Limits{HoldBackAt: high}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
			got++
			return c.Send(make([]byte, high+high/2))
		})
	}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Block(0)
		p.Send("first", "second")
		p.Block(high - 100) // 600 are left
		if srv.Sleep(0); got != 1 {
			t.Errorf("%d messages were delivered while more than half of HoldBackAt waits", got)
		}
		p.Block(200)
		if srv.Sleep(0); got != 2 {
			t.Errorf("%d messages were delivered when less than half of it waits", got)
		}
		p.Unblock()
	})
}
