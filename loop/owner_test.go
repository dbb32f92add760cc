//go:build race

package loop_test

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// anywhere are the methods that any goroutine may call, and ofTests those that only tests see.
var (
	anywhere = []string{"Conn.ID", "Conn.LocalAddr", "Conn.Loop", "Conn.Ref", "Conn.RemoteAddr",
		"Loop.Index", "Loop.Now", "Loop.Post", "Loop.PostFrom", "Loop.TryPost"}
	ofTests = []string{"Conn.HoldRead", "Conn.Info", "Conn.MaxOutbound", "Conn.WhenPending", "Loop.AfterStop", "Loop.Away",
		"Loop.Measured", "Loop.NumConns", "Loop.PostPieces", "Loop.SlowTurns", "Loop.Try", "Loop.WheelStats"}
)

// methods returns what calls each method of v on the wrong goroutine, by its name. They do not get
// as far as to look at their arguments.
func methods(of string, v any) map[string]func() {
	calls := make(map[string]func())
	for m, call := range reflect.ValueOf(v).Methods() {
		name := of + "." + m.Name
		if slices.Contains(anywhere, name) || slices.Contains(ofTests, name) {
			continue
		}
		args := make([]reflect.Value, call.Type().NumIn())
		for i := range args {
			args[i] = reflect.Zero(call.Type().In(i))
		}
		calls[name] = func() { call.Call(args) }
	}
	return calls
}

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
		local := loop.NewLocal(func(*loop.Loop) int { return 0 })
		calls := map[string]func(){
			"Offload":       func() { _ = loop.Offload(c, func(context.Context) int { return 0 }, func(*loop.Conn, int) {}) },
			"HandlerAs":     func() { loop.HandlerAs[loop.Handler](c) },
			"Pipe":          func() { loop.Pipe(c, c, loop.PipeConfig{}) },
			"Loop.PostFrom": func() { _ = c.Loop().PostFrom(c.Loop(), func() {}) }, // from is the loop that it must be called on
			"Ref.TellFrom":  func() { _ = c.Ref().TellFrom(c.Loop(), func(*loop.Conn) {}) },
			"Local.Get":     func() { local.Get(c.Loop()) },
		}
		for of, v := range map[string]any{"Conn": c, "Loop": c.Loop(), "Timer": timer} {
			maps.Copy(calls, methods(of, v))
		}
		for name, call := range calls {
			mustPanicWith(t, name+" called on goroutine", call)
		}
		for name, call := range methods("Timer", ofConn) {
			mustPanicWith(t, name+" called on goroutine", call)
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
		if err := l.Post(func() {}); err != nil {
			t.Error(err)
		}
		if _, err := l.PostPieces(func() bool { return false }); err != nil {
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
