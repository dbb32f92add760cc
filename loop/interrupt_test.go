package loop_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// working are the ways in which a connection is at work on a request.
var working = map[string]func(c *loop.Conn) error{
	"nothing": func(c *loop.Conn) error { c.OnEOF(func() {}); return nil },
	"busy":    func(c *loop.Conn) error { c.OnEOF(func() {}); c.SetBusy(true); return nil },
	"a job": func(c *loop.Conn) error {
		return loop.Offload(c, func(ctx context.Context) int { <-ctx.Done(); return 0 }, func(*loop.Conn, int) {})
	},
}

// An end that interrupts the work on a request is a reset, whatever the server ends c for: the peer
// must not take a part of the answer for all of it. The handler's own close is not.
func TestInterruptedWorkEndsWithReset(t *testing.T) {
	type end struct {
		with   func(srv *looptest.Server, p *looptest.Peer)
		is     []error // what OnClose gets if nothing was at work
		always bool    // a reset also if nothing was at work
		never  bool    // no reset
		cut    bool    // if something was at work, it counts as cut
	}
	panics := errors.New("a panic")
	say := func(what string) func(*looptest.Server, *looptest.Peer) {
		return func(_ *looptest.Server, p *looptest.Peer) { p.Send(what) }
	}
	for name, end := range map[string]end{
		"the drain's timeout": {with: func(srv *looptest.Server, _ *looptest.Peer) { srv.Shutdown() },
			is: []error{loop.ErrServerClosed}, cut: true},
		"Close": {with: func(srv *looptest.Server, _ *looptest.Peer) { _ = srv.Close() },
			is: []error{loop.ErrServerClosed}, cut: true},
		"idle":                 {with: func(*looptest.Server, *looptest.Peer) {}, is: []error{loop.ErrIdle}},
		"a slow frame":         {with: say("half a line"), is: []error{loop.ErrSlowFrame}},
		"the handler's idle":   {with: say("idle\n"), is: []error{loop.ErrIdle}},
		"too many jobs":        {with: say("full\n"), is: []error{loop.ErrOffloadFull}},
		"a panic in a timer":   {with: say("panic\n"), is: []error{panics}},
		"a panic of OnMessage": {with: say("panic now\n"), is: []error{panics}, always: true},
		"the handler's Close":  {with: say("close\n"), never: true},
		"the handler's error":  {with: say("fail\n"), is: []error{codec.ErrMalformed}, never: true},
	} {
		for work, begin := range working {
			t.Run(name+"/"+work, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv, err := looptest.TryStart(t, &loop.Server{
						Codec:       codec.Lines{},
						IdleTimeout: time.Hour,
						Timeouts:    loop.Timeouts{Frame: time.Minute},
						Drain:       loop.Drain{Window: time.Second, Timeout: time.Minute},
						Accept: accepting(nil, func(c *loop.Conn, msg []byte) error {
							switch string(msg) {
							case "begin":
								_ = c.Send([]byte("part"))
								return begin(c)
							case "idle":
								c.AfterFunc(time.Minute, func() { c.CloseWithError(loop.ErrIdle) })
							case "full":
								return loop.ErrOffloadFull
							case "panic":
								c.AfterFunc(time.Minute, func() { panic(panics) })
							case "panic now":
								panic(panics)
							case "close":
								c.Close()
							case "fail":
								return codec.ErrMalformed
							}
							return nil
						}),
					})
					if err != nil {
						t.Fatal(err)
					}
					p := srv.Open()
					p.Send("begin\n")
					end.with(srv, p)
					srv.Sleep(2 * time.Hour)
					atWork := work != "nothing"
					testkit.Want(t, "received", p.Received(), "part\n")
					testkit.Want(t, "ended", p.Ended(), true)
					testkit.Want(t, "reset", p.WasReset(), (atWork || end.always) && !end.never)
					is := slices.Clone(end.is)
					if atWork && end.cut {
						is = append(is, loop.ErrUnfinished)
					}
					for _, err := range is {
						testkit.WantErr(t, "reason", p.Reason(), err)
					}
					testkit.Want(t, "matches ErrUnfinished", errors.Is(p.Reason(), loop.ErrUnfinished), atWork && end.cut)
					testkit.Want(t, "cut", srv.Stats().Cut == 1, atWork && end.cut)
					_ = srv.Stop()
				})
			})
		}
	}
}
