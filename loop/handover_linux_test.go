package loop_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/loopwheel/loopwheel/loop"
)

// A listener that is handed over from server to server, as in a restart, with connections open: who is
// connected is drained, who comes is served by the next one, and no descriptor is left.
func TestHandOverLeavesNoDescriptors(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		inherited, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := inherited.Addr()
		const restarts, warm = 8, 2 // what is made once is made then
		before := 0
		for i := range restarts {
			f, err := inherited.(*net.TCPListener).File() // as the next process inherits it
			if err != nil {
				t.Fatal(err)
			}
			serveOnce(t, ctx, inherited)
			if inherited, err = net.FileListener(f); err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
			if i == warm-1 {
				before = openFiles(t)
			}
		}
		waitFor(t, func() bool { return openFiles(t) <= before })
		if inherited.Addr().String() != addr.String() {
			t.Errorf("the last one listens on %v, the first one on %v", inherited.Addr(), addr)
		}
		_ = inherited.Close()
	})
}

// serveOnce runs a server on ln, until it is drained with a connection open.
func serveOnce(t *testing.T, ctx context.Context, ln net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &loop.Server{Listener: ln, NumLoops: 2, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
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
