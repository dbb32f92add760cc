package realtest_test

import (
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// heapPeak looks at the heap now and then until the test ends, and returns what tells how much it
// has grown at most.
func heapPeak(t *testing.T) func() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most := m.HeapInuse, uint64(0)
	look := func() {
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapInuse-min(before, m.HeapInuse))
	}
	ask, answers := make(chan struct{}), make(chan uint64)
	go func() {
		for {
			select {
			case <-time.After(20 * time.Millisecond):
				look()
			case _, ok := <-ask:
				if !ok {
					return
				}
				look()
				answers <- most
			}
		}
	}()
	t.Cleanup(func() { close(ask) })
	return func() uint64 {
		ask <- struct{}{}
		return <-answers
	}
}

// Messages that were small on the wire and are long here, pushed to a client that reads nothing: it
// is closed as a slow consumer before they have cost much memory.
func TestCompressedPushesToASilentReader(t *testing.T) {
	reason := make(chan error, 1)
	srv := &loop.Server{NumLoops: 1, Codec: shrinking{}, Accept: func(c *loop.Conn) loop.Handler {
		msg := make([]byte, 65_530)
		c.Every(time.Millisecond, func() {
			for range 200 {
				if c.Send(msg) != nil {
					return
				}
			}
		})
		return script{Close: func(_ *loop.Conn, err error) { reason <- err }}
	}}
	addr := start(t, srv)
	peak := heapPeak(t)
	dial(t, addr)
	select {
	case err := <-reason:
		if !errors.Is(err, loop.ErrSlowConsumer) {
			t.Errorf("closed with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it is still open")
	}
	if n := peak(); n > 16<<20 {
		t.Errorf("the heap grew to %d MiB", n>>20)
	}
}

// shrinking is a codec whose frames are much shorter than its messages, as with compression.
type shrinking struct{ codec.Raw }

func (shrinking) AppendFrame(dst, msg []byte) ([]byte, error) {
	n := len(dst)
	dst = append(dst, msg...) // as one that looks how long it becomes
	return dst[:n+100], nil
}

// Who goes on sending after a close has its input thrown away, up to a limit.
func TestLingeringIsBounded(t *testing.T) {
	srv := &loop.Server{NumLoops: 1, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error { return io.ErrNoProgress })
	}}
	c := dial(t, start(t, srv))
	sent := 0
	for {
		n, err := c.Write(make([]byte, 256<<10))
		sent += n
		if err != nil {
			break
		}
	}
	turnsEnd(srv)
	if n := srv.Stats().BytesIn; n > 4<<20 {
		t.Errorf("%d MiB were read from a connection that was closed; %d were sent", n>>20, sent>>20)
	}
}
