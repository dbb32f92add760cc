package netpackets

import (
	"fmt"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// collected is a sink. The test's goroutine is the loop.
type collected struct {
	batches [][]string
	failed  []error
	keeps   bool // what it receives
}

func (s *collected) Received(batch []engine.Datagram) (done bool) {
	var all []string
	for _, d := range batch {
		all = append(all, string(d.Data))
	}
	s.batches = append(s.batches, all)
	return !s.keeps
}

func (s *collected) Failed(err error) { s.failed = append(s.failed, err) }

// A queueLoop is a loop that the test runs.
type queueLoop chan func()

func (q queueLoop) Execute(f func())     { q <- f }
func (queueLoop) Ended() <-chan struct{} { return nil }

// newRig returns a socket, its sink, the queue of its loop, and who sends to it.
func newRig(t *testing.T) (*Packets, *collected, chan func(), net.Conn) {
	t.Helper()
	queue, sink := make(chan func(), 10_000), new(collected)
	all, err := Bind(t.Context(), net.ListenConfig{}, "udp", "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(queueLoop(queue), all[0], sink)
	t.Cleanup(s.Close)
	peer, err := net.Dial("udp", s.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return s, sink, queue, peer
}

func next(t *testing.T, queue chan func()) func() {
	t.Helper()
	select {
	case f := <-queue:
		return f
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
		return nil
	}
}

// Datagrams that came while the loop was busy are seen before the loop takes them, wherever they
// wait.
func TestWhatWaitsIsPending(t *testing.T) {
	s, sink, queue, peer := newRig(t)
	if s.Pending() {
		t.Error("pending, and nothing was sent")
	}
	want := []string{"a", "", "ccc"}
	for _, msg := range want {
		if _, err := peer.Write([]byte(msg)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for len(got) < len(want) {
		if !s.Pending() {
			t.Errorf("not pending after %q", got)
		}
		next(t, queue)()
		got = slices.Concat(sink.batches...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if s.Pending() {
		t.Error("pending, and all was taken")
	}
}

// A loop that does not take what came stops the reader; then the kernel keeps the rest.
func TestReaderWaits(t *testing.T) {
	_, sink, queue, peer := newRig(t)
	const all = batches*batchSize + 100
	for i := range all {
		if _, err := fmt.Fprint(peer, i); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "the queue is full", func() bool { return len(queue) == batches })
	time.Sleep(10 * time.Millisecond) // in which the reader must not go on
	testkit.Want(t, "batches that wait", len(queue), batches)
	for got := 0; got < all; {
		next(t, queue)()
		for _, msg := range sink.batches[len(sink.batches)-1] {
			if msg != fmt.Sprint(got) {
				t.Fatalf("got %s, want %d", msg, got)
			}
			got++
		}
	}
	if len(sink.failed) > 0 {
		t.Errorf("errors %v", sink.failed)
	}
}

// A socket that was closed says nothing more, whatever waited.
func TestNothingAfterClose(t *testing.T) {
	s, sink, queue, peer := newRig(t)
	if _, err := peer.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	take := next(t, queue)
	s.Close()
	if take(); len(sink.batches) > 0 || len(sink.failed) > 0 {
		t.Errorf("got %q, %v", sink.batches, sink.failed)
	}
}

// heap returns how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A socket has buffers for as many datagrams as have come at once, and gives them back.
func TestBuffersAreForWhatHasCome(t *testing.T) {
	const few, many = 1 << 20, batchSize / 2 * maxDatagram
	before := heap()
	s, sink, queue, peer := newRig(t)
	took := func() int64 { return heap() - before }
	send := func(n int) {
		for range n {
			_, _ = peer.Write([]byte("x"))
		}
		for got := 0; got < n; {
			next(t, queue)()
			got += len(sink.batches[len(sink.batches)-1])
		}
		sink.batches = nil
	}
	for range 10 {
		send(1)
	}
	if n := took(); n > few {
		t.Errorf("%d bytes after single datagrams, want at most %d", n, few)
	}
	for range 20 {
		send(4 * batchSize)
	}
	if n := took(); batchSize > 1 && n < many {
		t.Errorf("%d bytes after %d datagrams at once, want at least %d", n, 4*batchSize, many)
	}
	for range 2 * 10 * sparseMost {
		send(1)
	}
	if n := took(); n > few {
		t.Errorf("%d bytes after single datagrams again, want at most %d", n, few)
	}
	runtime.KeepAlive(s)
}
