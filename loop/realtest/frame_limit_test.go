package realtest_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// endless is a codec that waits for ever.
type endless struct{ codec.Raw }

func (endless) Decode([]byte) (advance int, frame []byte, err error) { return 0, nil, nil }

// limited is one that says how much it waits for.
type limited struct {
	endless
	limit int
}

func (l limited) FrameSize([]byte) (int, bool) { return l.limit, false }

// endOnly tells why its connection closed.
type endOnly struct{ closed chan error }

func (endOnly) OnMessage(*loop.Conn, []byte) error { return nil }
func (e endOnly) OnClose(_ *loop.Conn, err error)  { e.closed <- err }

// A codec that never finds a frame costs no more memory than Server.Limits.MaxFrame, or its own
// limit, allows: a peer that offers 200 MiB is closed with ErrTooLong long before.
func TestMaxFrame(t *testing.T) {
	for name, tc := range map[string]struct {
		codec codec.Codec
		max   int // Server.Limits.MaxFrame
		limit int // what holds
	}{
		"the default":            {endless{}, 0, 16 << 20},
		"a lower one":            {endless{}, 1 << 20, 1 << 20},
		"the codec's own, more":  {limited{limit: 4 << 20}, 1 << 20, 4 << 20},
		"the codec's own, wrong": {limited{limit: -1}, 1 << 20, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			h := endOnly{make(chan error, 1)}
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Codec: tc.codec, Limits: loop.Limits{MaxFrame: tc.max},
				Accept: func(*loop.Conn) loop.Handler { return h }}
			ctx, stop := context.WithCancel(t.Context())
			if err := srv.Start(ctx); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { stop(); _ = srv.Wait() })
			c, err := net.Dial("tcp", srv.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			chunk, sent, most := make([]byte, 256<<10), 0, uint64(0)
			for sent < 200<<20 {
				n, err := c.Write(chunk)
				if sent += n; err != nil {
					break
				}
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapAlloc)
			}
			if sent >= 200<<20 {
				t.Fatal("all of it was taken")
			}
			if err := <-h.closed; !errors.Is(err, codec.ErrTooLong) {
				t.Errorf("closed with %v", err)
			}
			if bound := uint64(8*tc.limit + 32<<20); most > before.HeapAlloc+bound {
				t.Errorf("the heap has grown by %d MiB", (most-before.HeapAlloc)>>20)
			}
		})
	}
}
