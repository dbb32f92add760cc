package realtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// More buffers than one writev takes, through a socket that is full most of the time.
func TestManyBuffersThroughTheKernel(t *testing.T) {
	testkit.NeedSlow(t, "it takes 6 s")
	const frames, size = 1300, 33_000 // two do not fit in one buffer
	srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
		return script{Message: func(c *loop.Conn, _ []byte) error {
			for i := range frames {
				if err := c.Send(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					return err
				}
			}
			c.Close()
			return nil
		}}
	}, Limits: loop.Limits{MaxOutbound: 2 * frames * size}, Timeouts: loop.Timeouts{Close: time.Minute}}
	c := dial(t, start(t, srv))
	c.Write([]byte("go"))
	buf := make([]byte, size)
	for i := range frames {
		if _, err := io.ReadFull(c, buf); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if !bytes.Equal(buf, bytes.Repeat([]byte{byte(i)}, size)) {
			t.Fatalf("frame %d is not what was sent", i)
		}
	}
	if _, err := c.Read(buf); err != io.EOF {
		t.Errorf("after the last frame: %v", err)
	}
}

// A client that sends first and is refused reads the farewell, and then the end: no reset, which
// might cost it the farewell.
func TestRefusalOfOneWhoSpeaksFirst(t *testing.T) {
	needPlain(t, "a farewell is sent before the handshake")
	input := make(chan struct{})
	refuses := func(c *loop.Conn) loop.Handler {
		<-input
		_ = c.Send([]byte("full"))
		return nil
	}
	for name, srv := range map[string]*loop.Server{
		"by Accept":  {Accept: refuses, Debug: loop.Debug{BlockedAfter: time.Minute}},
		"by a limit": {Accept: silent, Limits: loop.Limits{MaxConnsPerIP: 1, Refusal: []byte("full")}},
	} {
		t.Run(name, func(t *testing.T) {
			addr := start(t, srv)
			if srv.Limits.MaxConnsPerIP > 0 {
				mustBeIn(t, srv, dial(t, addr))
			}
			for range 10 {
				began := time.Now()
				c := dial(t, addr)
				_, _ = c.Write(make([]byte, 1000))
				late := time.Since(began) >= time.Second // the server does not wait for longer
				if srv.Limits.MaxConnsPerIP == 0 {
					input <- struct{}{}
				}
				if b, err := io.ReadAll(c); (string(b) != "full" || err != nil) && !late {
					t.Errorf("read %q, %v", b, err)
				}
				_ = c.Close()
			}
			turnsEnd(t, srv)
			if n := srv.Stats().Refused; n != 10 {
				t.Errorf("%d refused", n)
			}
		})
	}
}

// mustBeIn waits until the first connection is open.
func mustBeIn(t *testing.T, srv *loop.Server, c net.Conn) {
	_, _ = c.Write([]byte("x"))
	for srv.Stats().BytesIn == 0 {
		turnsEnd(t, srv)
	}
}

// A server leaves nothing behind: no goroutine, no descriptor.
func TestNothingIsLeft(t *testing.T) {
	testkit.NeedSlow(t, "it takes 12 s")
	if runtime.GOOS != "linux" {
		t.Skip("it counts descriptors in /proc; run it on Linux, as CI does")
	}
	life := func() {
		ctx, cancel := context.WithCancel(context.Background())
		srv := &loop.Server{
			Addr: "tcp://127.0.0.1:0", NumLoops: 3, Timeouts: loop.Timeouts{Close: time.Millisecond}, Limits: loop.Limits{MaxOutbound: 64 << 20},
			Accept: func(*loop.Conn) loop.Handler {
				return script{Message: func(c *loop.Conn, _ []byte) error { return c.Send(make([]byte, 16<<20)) }}
			},
		}
		if err := srv.Start(ctx); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			c, err := net.Dial("tcp", srv.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.Write([]byte("x"))
			c.Read(make([]byte, 1)) // the rest stays, so that the watcher has something to do
		}
		cancel()
		var cut *loop.DrainError
		if err := srv.Wait(); !errors.As(err, &cut) || cut.Cut != 10 {
			t.Errorf("Wait: %v", err)
		}
	}
	life() // starts what the process starts once
	files := openFiles(t)
	for range 3 {
		life()
	}
	testkit.Eventually(t, "no more descriptors are open than before", func() bool { return openFiles(t) <= files })
	if stacks := ourGoroutines(); stacks != "" {
		t.Errorf("goroutines are left:\n%s", stacks)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}
