package realtest_test

import (
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// heapPeak looks at the heap now and then until the test ends, and returns what tells how much it
// has grown at most, as grownSince says.
func heapPeak(t *testing.T, much uint64) func() uint64 {
	runtime.GC()
	before, most := heapInUse(), uint64(0)
	look := func() { most = max(most, grownSince(before, much)) }
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

// grownSince returns by how much the heap has grown: if that is much, without the garbage, which a
// busy machine is late to collect.
func grownSince(before, much uint64) uint64 {
	now := heapInUse()
	if now > before+much {
		runtime.GC()
		now = heapInUse()
	}
	return now - min(before, now)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// Messages that are long here and short on the wire, pushed to a client that reads nothing: it is
// closed as a slow consumer before they have cost much memory.
func TestCompressedPushesToASilentReader(t *testing.T) {
	testkit.NeedSlow(t, "it takes 9 s")
	noisy := func(n int) []byte { return append(noise()[:n:n], make([]byte, 65_530-n)...) }
	for name, c := range map[string]struct {
		dialect *dialect
		msg     []byte
	}{
		"websocket, 1 to 100": {deflateDialect(), noisy(512)},
		"websocket, 1 to 15":  {deflateDialect(), noisy(4 << 10)},
		"a codec of its own":  {&dialect{codec: shrinking{}, open: func(io.ReadWriter) error { return nil }}, noisy(0)},
	} {
		t.Run(name, func(t *testing.T) {
			tries(t, func(t *testing.T) (time.Duration, uint64) {
				return 0, 2 * pushedToSilence(t, c.dialect, c.msg) // the limit is 16 MiB here
			})
		})
	}
}

// Who is sent little at a time and reads nothing is found when the buffers of the system are full:
// of some megabytes by themselves, and soon with a small SendBuffer.
func TestSmallSendBufferFindsSilentReaders(t *testing.T) {
	const state, most = 200, 1 << 20 // bytes
	sent, reason := 0, make(chan error, 1)
	srv := &loop.Server{NumLoops: 1, Limits: loop.Limits{MaxOutbound: 16 << 10}, TCP: loop.TCPOptions{SendBuffer: 16 << 10}}
	srv.Accept = func(c *loop.Conn) loop.Handler {
		c.Every(time.Millisecond, func() {
			for range 10 {
				if sent += state; c.Send(make([]byte, state)) != nil || sent > most {
					c.Close()
				}
			}
		})
		return script{Close: func(_ *loop.Conn, err error) { reason <- err }}
	}
	dial(t, start(t, srv))
	if err := <-reason; !errors.Is(err, loop.ErrSlowConsumer) {
		t.Errorf("closed with %v after %d KiB", err, sent>>10)
	}
	t.Logf("%d states of %d bytes", sent/state, state)
}

// pushedToSilence returns how much the heap grew.
func pushedToSilence(t *testing.T, d *dialect, msg []byte) (heap uint64) {
	reason, begin := make(chan error, 1), make(chan struct{})
	srv := &loop.Server{NumLoops: 1, Codec: d.codec, Accept: func(c *loop.Conn) loop.Handler {
		c.Every(time.Millisecond, func() {
			select {
			case <-begin:
			default:
				return
			}
			for range 50 {
				if c.Send(msg) != nil {
					return
				}
			}
		})
		return script{Close: func(_ *loop.Conn, err error) { reason <- err }}
	}}
	c := dial(t, start(t, srv))
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10)
	}
	if err := d.open(c); err != nil {
		t.Fatal(err)
	}
	peak := heapPeak(t, mostHeap/2)
	close(begin)
	select {
	case err := <-reason:
		if !errors.Is(err, loop.ErrSlowConsumer) {
			t.Errorf("closed with %v", err)
		}
	case <-time.After(5 * time.Minute): // to compress a lot, on a slow machine
		t.Fatal("it is still open")
	}
	heap = peak()
	t.Logf("the heap grew to %d MiB", heap>>20)
	return heap
}

// shrinking is a codec whose frames are much shorter than its messages, as with compression.
type shrinking struct{ codec.Raw }

func (shrinking) AppendFrame(dst, msg []byte) ([]byte, error) {
	n := len(dst)
	dst = append(dst, msg...) // as one that looks how long it becomes
	return dst[:n+100], nil
}
