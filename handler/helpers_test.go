package handler_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// bubble runs f in virtual time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func echo(c *loop.Conn, msg []byte) error { return c.Send(msg) }

var echoes = handler.Shared(loop.HandlerFunc(echo))

// startLines serves accept in memory, with codec.Lines.
func startLines(t *testing.T, loops int, accept loop.Accept) *looptest.Server {
	t.Helper()
	return looptest.Start(t, &loop.Server{NumLoops: loops, Codec: codec.Lines{}, Accept: accept})
}

// wantReceived compares what p has received since the last time.
func wantReceived(t *testing.T, p *looptest.Peer, want string) {
	t.Helper()
	if got := p.Received(); got != want {
		t.Errorf("%v received %q, want %q", p.Addr(), got, want)
	}
}

// wantReason checks why p was closed.
func wantReason(t *testing.T, p *looptest.Peer, want error) {
	t.Helper()
	if !p.Ended() || !errors.Is(p.Reason(), want) {
		t.Errorf("%v: closed %v with reason %v, want %v", p.Addr(), p.Ended(), p.Reason(), want)
	}
}

func wantOpen(t *testing.T, p *looptest.Peer) {
	t.Helper()
	if p.Ended() {
		t.Errorf("%v was closed: %v", p.Addr(), p.Reason())
	}
}

// wantPanic checks that f panics with a message that begins with "handler: ".
func wantPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if s, ok := recover().(string); !ok || len(s) < 10 || s[:9] != "handler: " {
			t.Errorf("%s: panicked with %q", what, s)
		}
	}()
	f()
	t.Errorf("%s: did not panic", what)
}
