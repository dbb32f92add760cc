package sockets

import (
	"fmt"
	"net"
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

// newRig returns a socket, its sink, the queue of its loop, and a connection that sends to it.
func newRig(t *testing.T) (*udpReader, *collected, *engine.Queue, net.Conn) {
	t.Helper()
	queue, sink := engine.NewQueue(func() {}), new(collected)
	all, err := System{}.ListenPacket(t.Context(), net.ListenConfig{}, "udp", "127.0.0.1:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	s := newUDPReader(queue, all[0], sink)
	t.Cleanup(s.Close)
	peer, err := net.Dial("udp", s.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return s, sink, queue, peer
}

func next(t *testing.T, queue *engine.Queue) func() {
	t.Helper()
	testkit.Eventually(t, "a task for the loop", func() bool { return queue.Len() > 0 })
	return queue.Next()
}

// Datagrams that came while the loop was busy are seen before the loop takes them, wherever they
// wait.
func TestWhatWaitsIsPending(t *testing.T) {
	s, sink, queue, peer := newRig(t)
	if s.HasInput() {
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
		if !s.HasInput() {
			t.Errorf("not pending after %q", got)
		}
		next(t, queue)()
		got = slices.Concat(sink.batches...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if s.HasInput() {
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
	testkit.Eventually(t, "the queue is full", func() bool { return queue.Len() == batches })
	time.Sleep(10 * time.Millisecond) // in which the reader must not go on
	testkit.Want(t, "batches that wait", queue.Len(), batches)
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

// A loop that holds a socket gets what the reader has taken from it before Hold returns, and nothing
// after that.
func TestHoldLeavesNothingBehind(t *testing.T) {
	s, sink, queue, peer := newRig(t)
	for i := range 40 {
		if _, err := fmt.Fprint(peer, i); err != nil {
			t.Fatal(err)
		}
		take := next(t, queue)
		_ = s.SetReadDeadline(time.Unix(1, 0))
		time.Sleep(time.Millisecond) // in which the reader falls asleep, most times
		s.Hold(true)
		testkit.Want(t, "batches when it holds", len(sink.batches), i+1)
		take()
		testkit.Want(t, "batches after that", len(sink.batches), i+1)
		s.Hold(false)
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

// A batch has buffers for as many datagrams as have come at once, and gives them back.
func TestBuffersAreForWhatHasCome(t *testing.T) {
	const most = 64
	b := newBatch(most)
	room := func(what string, want int) {
		t.Helper()
		if got := cap(b.messages); got > 2*want || len(b.messages) != want {
			t.Errorf("%s: room for %d datagrams, and memory for %d; want %d", what, len(b.messages), got, want)
		}
	}
	b.fit(0)
	room("nothing has come", 1)
	for range most {
		b.fit(len(b.messages))
	}
	room("it was always full", most)
	for range 10 * sparseMost {
		b.fit(1)
	}
	room("one has come each time", 2)
}
