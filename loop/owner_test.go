//go:build race

package loop_test

import (
	"context"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// In builds with the race detector each method that must be called on the loop says so when it is
// not, by name.
func TestWrongGoroutine(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		var c *loop.Conn
		var timer, ofConn loop.Timer
		tell(srv, p, func(conn *loop.Conn) {
			c = conn
			timer, ofConn = c.Loop().AfterFunc(time.Hour, func() {}), c.AfterFunc(time.Hour, func() {})
		})
		l, f := c.Loop(), func() {}
		local := loop.NewLocal(func(*loop.Loop) int { return 0 })
		for name, call := range map[string]func(){
			"Loop.AfterFunc":      func() { l.AfterFunc(1, f) },
			"Loop.Every":          func() { l.Every(1, f) },
			"Loop.Conns":          func() { l.Conns() },
			"Loop.NumConns":       func() { l.NumConns() },
			"Loop.WheelStats":     func() { l.WheelStats() },
			"Loop.Try":            func() { _ = l.Try(f) },
			"Loop.AfterStop":      func() { l.AfterStop(f) },
			"Offload":             func() { _ = loop.Offload(c, func(context.Context) int { return 0 }, func(*loop.Conn, int) {}) },
			"Conn.Send":           func() { c.Send(nil) },
			"Conn.Write":          func() { c.Write(nil) },
			"Conn.Pending":        func() { c.Pending() },
			"Conn.Close ":         func() { c.Close() },
			"Conn.CloseWithError": func() { c.CloseWithError(nil) },
			"Conn.AfterFunc":      func() { c.AfterFunc(1, f) },
			"Conn.Every":          func() { c.Every(1, f) },
			"Conn.OnIdle":         func() { c.OnIdle(loop.IdleRead, 1, func(int) {}) },
			"Conn.SetIdleTimeout": func() { c.SetIdleTimeout(1) },
			"Conn.IdleDeadline":   func() { c.IdleDeadline() },
			"Conn.SetCodec":       func() { c.SetCodec(codec.Raw{}) },
			"Conn.Codec":          func() { c.Codec() },
			"Conn.Log":            func() { c.Log() },
			"Conn.AfterClose":     func() { c.AfterClose(func(error) {}) },
			"Conn.PauseRead":      func() { c.PauseRead() },
			"Conn.ResumeRead":     func() { c.ResumeRead() },
			"Conn.OnHighWater":    func() { c.OnHighWater(1, f) },
			"Conn.OnFlushed":      func() { c.OnFlushed(f) },
			"Timer.Stop":          func() { timer.Stop() },
			"Timer.Reset":         func() { ofConn.Reset(1) },
			"Local.Get":           func() { local.Get(l) },
		} {
			mustPanicWith(t, name, call)
		}
		if p.Ended() || srv.Stats().Timers != 2 {
			t.Error("a refused call had an effect")
		}
	})
}

// These may be called from anywhere.
func TestAnyGoroutine(t *testing.T) {
	bubble(t, &loop.Server{NumLoops: 2}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		var c *loop.Conn
		tell(srv, p, func(conn *loop.Conn) { c = conn })
		l := c.Loop()
		if c.Ref().ID() != c.ID() || c.RemoteAddr() != p.Addr() || c.LocalAddr() != srv.LocalAddr() {
			t.Error("the connection does not know who it is")
		}
		if l != srv.Loops()[l.Index()] || !l.Now().Equal(time.Now()) {
			t.Error("the loop does not know who, or when, it is")
		}
		if err := l.Post(func() {}); err != nil {
			t.Error(err)
		}
		if err := c.Ref().Tell(func(*loop.Conn) {}); err != nil {
			t.Error(err)
		}
		_, _ = srv.Stats(), srv.Addrs()
	})
}

// A loop is as strange to another loop as any goroutine.
func TestWrongLoop(t *testing.T) {
	bubble(t, &loop.Server{NumLoops: 2}, func(t *testing.T, srv *looptest.Server) {
		a := srv.Loops()[0]
		srv.Do(1, func(*loop.Loop) {
			mustPanicWith(t, "Loop.AfterFunc", func() { a.AfterFunc(1, func() {}) })
		})
	})
}
