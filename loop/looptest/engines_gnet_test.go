//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package looptest

import (
	"net"
	"testing"

	"github.com/panjf2000/gnet/v2"
	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/gnetengine"
)

func init() {
	engines["gnet"] = systemEngine(func() engine.Engine { return gnetengine.New(zerolog.Nop()) })
}

// another is a gnet engine of somebody else's: it counts what it reads.
type another struct {
	gnet.BuiltinEventEngine
	heard chan string
}

func (a *another) OnTraffic(c gnet.Conn) gnet.Action {
	p, _ := c.Next(-1)
	a.heard <- string(p)
	return gnet.None
}

// Another gnet engine of the program works before, beside and after ours, also where it needs
// gnet's own worker pool, which is one for the process.
func TestAnotherGnetEngine(t *testing.T) {
	a := &another{heard: make(chan string, 1)}
	client, err := gnet.NewClient(a, gnet.WithNumEventLoop(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	defer client.Stop()
	accepted := make(chan net.Conn, 1)
	ln := testkit.Serve(t, func(c net.Conn) {
		accepted <- c
		<-t.Context().Done()
	})
	var loop gnet.EventLoop
	works := func(when string) {
		t.Helper()
		if loop == nil {
			c, err := client.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			loop = c.EventLoop()
			testkit.Receive(t, when, accepted)
		}
		nc, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		result, err := loop.Enroll(t.Context(), nc)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if res := testkit.Receive(t, when, result); res.Err != nil || res.Conn == nil {
			t.Fatalf("%s: enrolled %v, %v", when, res.Conn, res.Err)
		}
		if _, err := testkit.Receive(t, when, accepted).Write([]byte(when)); err != nil {
			t.Fatal(err)
		}
		if got := testkit.Receive(t, when, a.heard); got != when {
			t.Errorf("heard %q, want %q", got, when)
		}
	}
	works("before")
	t.Run("beside", func(t *testing.T) {
		r := startEngine(t, engines["gnet"], 1)
		ear, peer := r.open("tcp")
		works("beside")
		if _, err := peer.Write([]byte("ours")); err != nil {
			t.Fatal(err)
		}
		ear.hears(t, "ours")
	})
	works("after")
}
