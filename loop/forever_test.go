package loop_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

const forever = time.Duration(math.MaxInt64)

// A dial may wait forever: package net dials a unix socket, on a goroutine.
func TestDialForever(t *testing.T) {
	bothEngines(t, func(t *testing.T, ctx context.Context) {
		sock := testkit.SocketPath(t)
		start(t, &loop.Server{Addr: "unix://" + sock, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }})
		client := &loop.Server{NumLoops: 1}
		startWith(t, ctx, client)
		o := dialOn(t, loop.Dialer{Codec: codec.Lines{}, Timeout: forever}, client.Loops()[0], "unix://"+sock)
		if o.err != nil {
			t.Fatal(o.err)
		}
		o.tell(t, (*loop.Conn).Close)
	})
}
