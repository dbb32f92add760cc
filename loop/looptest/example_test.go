package looptest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// What a test of a server looks like; its name would begin with Test, of course.
func Example() {
	testEviction := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := looptest.Start(t, &loop.Server{
				Codec:       codec.Lines{},
				IdleTimeout: time.Hour,
				Accept:      func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
			})
			p := srv.Open()
			p.Send("hel", "lo\n") // two packets
			if got := p.Received(); got != "hello\n" {
				t.Errorf("got %q", got)
			}
			srv.Sleep(time.Hour) // takes no time
			if !errors.Is(p.Reason(), loop.ErrIdle) {
				t.Errorf("closed with %v", p.Reason())
			}
		})
	}
	_ = testEviction
}

// A peer that does not read shows what becomes of output that has to wait.
func ExamplePeer_Block() {
	testSlowConsumer := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			srv := looptest.Start(t, &loop.Server{
				Limits: loop.Limits{MaxOutbound: 1 << 20},
				Accept: func(c *loop.Conn) loop.Handler {
					c.Every(time.Second, func() { _ = c.Send(make([]byte, 100<<10)) })
					return loop.HandlerFunc(echo)
				},
			})
			p := srv.Open()
			p.Block(0)
			srv.Sleep(time.Minute)
			if !errors.Is(p.Reason(), loop.ErrSlowConsumer) {
				t.Errorf("closed with %v", p.Reason())
			}
		})
	}
	_ = testSlowConsumer
}
