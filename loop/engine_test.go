package loop_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// broken is an engine that cannot start.
type broken struct {
	engine.Engine // nil: what is not implemented here must not be called
	listeners     []net.Listener
	stopped       bool
}

var errNoPoller = errors.New("no descriptors for a poller")

func (b *broken) Listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	ln, err := lc.Listen(ctx, network, address)
	b.listeners = append(b.listeners, ln)
	return ln, err
}

func (*broken) Capacity(int) int { return 1 }

func (*broken) Start(time.Time, []engine.Host) ([]engine.Loop, error) { return nil, errNoPoller }

func (b *broken) Stop() error {
	b.stopped = true
	return nil
}

// A server whose engine does not start leaves nothing behind: no listener, no loops to post to.
func TestEngineThatDoesNotStart(t *testing.T) {
	b := &broken{}
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: silent}
	err := srv.Start(testhook.WithEngine(t.Context(), b))
	if !errors.Is(err, errNoPoller) || !b.stopped {
		t.Errorf("Start: %v, stopped %v", err, b.stopped)
	}
	for _, ln := range b.listeners {
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a listener is still open: %v", err)
		}
	}
	if srv.Loops() != nil || srv.LocalAddr() != nil {
		t.Error("there are loops, or an address")
	}
	if err := srv.Wait(); err == nil || !strings.Contains(err.Error(), "Wait") {
		t.Errorf("Wait: %v", err)
	}
	if err := srv.Start(t.Context()); err == nil {
		t.Error("could be started again")
	}
}
