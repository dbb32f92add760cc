//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"errors"
	"net"
	"testing"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Who enrolls a connection hears of it once: that it was opened, or that it is lost, also if the
// loop ends meanwhile.
func TestEnrollAnswersOnce(t *testing.T) {
	for range 20 {
		r := newRig(t, 1)
		if err := r.Start(1, r.base, r); err != nil {
			t.Fatal(err)
		}
		addr, accepted := listen(t)
		const conns = 8
		answers := make(chan error, 2*conns)
		for range conns {
			peer, err := net.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			r.Enroll(0, wait(t, accepted, "a connection"), func(engine.Socket) engine.Sink {
				answers <- nil
				return newEar()
			}, func(err error) { answers <- err })
		}
		r.Lost(0)
		for range conns {
			if err := wait(t, answers, "an answer"); err != nil && !errors.Is(err, engine.ErrEnded) {
				t.Error(err)
			}
		}
		if n := len(answers); n != 0 {
			t.Errorf("%d answers too many", n)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
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
	addr, accepted := listen(t)
	var loop gnet.EventLoop
	works := func(when string) {
		t.Helper()
		if loop == nil {
			c, err := client.Dial("tcp", addr.String())
			if err != nil {
				t.Fatal(err)
			}
			loop = c.EventLoop()
			wait(t, accepted, when)
		}
		nc, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		result, err := loop.Enroll(t.Context(), nc)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if res := wait(t, result, when); res.Err != nil || res.Conn == nil {
			t.Fatalf("%s: %v", when, res.Err)
		}
		peer := wait(t, accepted, when)
		defer peer.Close()
		if _, err := peer.Write([]byte(when)); err != nil {
			t.Fatal(err)
		}
		if got := wait(t, a.heard, when); got != when {
			t.Errorf("%s: heard %q", when, got)
		}
	}
	works("before")
	engines(t, 1, func(t *testing.T, r *rig) {
		addr, accepted := listen(t)
		if _, err := r.connect(addr, newEar()); err != nil {
			t.Fatal(err)
		}
		defer wait(t, accepted, "accept").Close()
		works("beside")
		r.do(0, func() {})
	})
	r := newRig(t, 1)
	if err := errors.Join(r.Start(1, r.base, r), r.Stop()); err != nil {
		t.Fatal(err)
	}
	works("after")
}
