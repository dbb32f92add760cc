package loop_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A listener that is handed over from server to server, as in a restart, with connections open: who
// is connected is drained, who comes is served by the next one, and no descriptor is left.
func TestHandOverLeavesNoDescriptors(t *testing.T) {
	for name, engine := range map[string]func() context.Context{
		"default": context.Background,
		"epoll":   func() context.Context { return onEpoll(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			inherited, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr := inherited.Addr().String()
			const restarts, warm = 8, 2 // what is made once is made then
			before := 0
			for i := range restarts {
				next := handOver(t, inherited)
				serveOnce(t, engine(), inherited)
				if inherited = next; i == warm-1 {
					before = openFiles(t)
				}
			}
			testkit.Eventually(t, "all new descriptors are closed", func() bool { return openFiles(t) <= before })
			if last := inherited.Addr().String(); last != addr {
				t.Errorf("the last one listens on %v, the first one on %v", last, addr)
			}
			_ = inherited.Close()
		})
	}
}

// handOver returns what the next process inherits.
func handOver(t *testing.T, ln net.Listener) net.Listener {
	t.Helper()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	next, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// serveOnce runs a server on ln, until it is drained with a connection open.
func serveOnce(t *testing.T, ctx context.Context, ln net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &loop.Server{AcceptFrom: ln, NumLoops: 2, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustEcho(t, c, "x")
	cancel()
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
	_ = c.Close()
	if err := srv.Wait(); err != nil {
		t.Error(err)
	}
}
