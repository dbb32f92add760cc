package loop_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A server on Go's own net does what one on gnet does. LOOPWHEEL_ENGINE=net runs all tests on it;
// this one always does, with frames larger than what a socket takes at once.
func TestEngineNet(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	reasons := make(chan error, 10)
	const size = 3 << 20
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", Engine: loop.EngineNet, NumLoops: 2, Codec: codec.Length{Max: size},
		Listeners: []loop.Listener{{Addr: "unix://" + testkit.SocketPath(t)}},
		Accept: func(*loop.Conn) loop.Handler {
			return script{Message: echo, Close: func(_ *loop.Conn, err error) { reasons <- err }}
		},
		MaxOutbound: 2 * size, IdleTimeout: time.Minute,
	}
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for i, addr := range srv.Addrs() {
		c, err := net.Dial(addr.Network(), addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		frame, err := codec.Length{Max: size}.AppendFrame(nil, bytes.Repeat([]byte{byte(i), 'x', 'y'}, size/3))
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = c.Write(frame) }()
		got := make([]byte, len(frame))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, frame) {
			t.Fatalf("%s: %v", addr, err)
		}
		if i == 0 {
			c.Close()
			if err := <-reasons; err != io.EOF {
				t.Errorf("closed with %v", err)
			}
		}
	}
	cancel()
	if err := <-reasons; err != loop.ErrServerClosed {
		t.Errorf("drained with %v", err)
	}
	if err := srv.Wait(); err != nil {
		t.Error(err)
	}
}
