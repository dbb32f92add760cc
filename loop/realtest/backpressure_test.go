package realtest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

const answerSize = 10 << 10 // of each answer

// asked returns how many requests are pipelined, and for how long nothing is read.
func asked() (n uint32, silence time.Duration) {
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		return 40_000, 1500 * time.Millisecond
	}
	return 8_000, 300 * time.Millisecond
}

// answer is the one to request n.
func answer(n uint32) []byte {
	b := bytes.Repeat([]byte{byte(n)}, answerSize)
	binary.BigEndian.PutUint32(b, n)
	return b
}

// respond is what an ordinary handler does.
func respond(c *loop.Conn, msg []byte) error { return c.Send(answer(binary.BigEndian.Uint32(msg))) }

// handlers are ways to answer, of which none may lose an answer or hang.
var handlers = map[string]loop.Accept{
	// A handler that knows nothing of backpressure.
	"plain": func(*loop.Conn) loop.Handler { return loop.HandlerFunc(respond) },

	// The recipes of docs/backpressure.md.
	"hooks": func(c *loop.Conn) loop.Handler {
		c.OnHighWater(64<<10, c.PauseRead)
		c.OnFlushed(c.ResumeRead)
		return loop.HandlerFunc(respond)
	},
	"pending": func(c *loop.Conn) loop.Handler {
		c.OnFlushed(c.ResumeRead)
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			err := respond(c, msg)
			if c.Pending() > 64<<10 {
				c.PauseRead()
			}
			return err
		})
	},

	// The answer comes from elsewhere.
	"offload": func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			n := binary.BigEndian.Uint32(msg)
			return loop.Offload(c, func(context.Context) []byte { return answer(n) },
				func(c *loop.Conn, a []byte) { _ = c.Send(a) })
		})
	},
}

// A client asks many times without reading for a while, then reads. Everything arrives in order,
// the process needs little memory, and another client of the same loop is answered meanwhile.
func TestPipelinedRequests(t *testing.T) {
	for name, accept := range handlers {
		for _, network := range []string{"tcp", "unix"} {
			if network == "unix" && name != "plain" {
				continue
			}
			t.Run(name+" over "+network, func(t *testing.T) { pipelined(t, network, accept) })
		}
	}
}

func pipelined(t *testing.T, network string, accept loop.Accept) {
	addr := "tcp://127.0.0.1:0"
	if network == "unix" {
		addr = "unix://" + filepath.Join(t.TempDir(), "x.sock")
	}
	srv := &loop.Server{Addr: addr, NumLoops: 1, Codec: codec.Length{}, Accept: accept,
		Listeners: []loop.Listener{{Addr: "tcp://127.0.0.1:0", Codec: codec.Raw{},
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}}}
	start(t, srv)
	c, prober := dial(t, srv.Addrs()[0]), dial(t, srv.Addrs()[1])
	var requests []byte
	count, silence := asked()
	for n := range count {
		requests = binary.BigEndian.AppendUint32(requests, 4)
		requests = binary.BigEndian.AppendUint32(requests, n)
	}
	go func() { _, _ = c.Write(requests) }()
	peak := heapPeak(t)
	worst := probe(t, prober, silence, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		readAnswers(t, c, count)
	}()
	worst = max(worst, probe(t, prober, time.Minute, done))
	t.Logf("the other client waited for %v at most, the heap grew to %d MiB", worst, peak()>>20)
	if worst > 5*time.Second { // what it is on a quiet machine is in the log
		t.Errorf("the other client waited for %v", worst)
	}
	if n := peak(); n > 32<<20 {
		t.Errorf("the heap grew to %d MiB", n>>20)
	}
	if st := srv.Stats(); st.Closed != 0 {
		t.Errorf("%d connections were closed", st.Closed)
	}
}

// readAnswers reads all answers and checks them.
func readAnswers(t *testing.T, c net.Conn, count uint32) {
	got := make([]byte, 4+answerSize)
	for n := range count {
		if _, err := io.ReadFull(c, got); err != nil {
			t.Errorf("answer %d: %v", n, err)
			return
		}
		if !bytes.Equal(got[4:], answer(n)) {
			t.Errorf("answer %d is another one", n)
			return
		}
	}
}

// probe echoes small messages for a while, or until done, and returns the longest wait.
func probe(t *testing.T, c net.Conn, d time.Duration, done chan struct{}) (worst time.Duration) {
	t.Helper()
	var b [1]byte
	for began := time.Now(); time.Since(began) < d; {
		select {
		case <-done:
			return worst
		case <-time.After(5 * time.Millisecond):
		}
		sent := time.Now()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b[:]); err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(sent))
	}
	return worst
}

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
