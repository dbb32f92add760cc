package loop_test

import (
	"testing"
	"testing/synctest"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// What Accept attached to a connection must be detached again when Accept then refuses it, or
// panics.
func TestAfterCloseOfRefused(t *testing.T) {
	for name, refuse := range map[string]func() loop.Handler{
		"nil":   func() loop.Handler { return nil },
		"panic": func() loop.Handler { panic("no") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ran := 0
				srv := looptest.Start(t, &loop.Server{NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
					c.AfterClose(func(error) { ran++ })
					return refuse()
				}})
				p := srv.Open()
				if !p.Closed() || p.Ended() || ran != 1 {
					t.Errorf("closed %v, ended %v, AfterClose ran %d times; want true, false, 1", p.Closed(), p.Ended(), ran)
				}
			})
		})
	}
}
