package netpackets

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// collected is a sink. The test's goroutine is the loop.
type collected struct {
	batches [][]string
	failed  []error
}

func (s *collected) Received(batch []engine.Datagram, _ bool) {
	var all []string
	for _, d := range batch {
		all = append(all, string(d.Data))
	}
	s.batches = append(s.batches, all)
}

func (s *collected) Failed(err error) { s.failed = append(s.failed, err) }

// newRig returns a socket, its sink, the queue of its loop, and who sends to it.
// A queueLoop is a loop that the test runs.
type queueLoop chan func()

func (q queueLoop) Execute(f func())     { q <- f }
func (queueLoop) Ended() <-chan struct{} { return nil }

func newRig(t *testing.T) (*Packets, *collected, chan func(), net.Conn) {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	sock, err := newSocket(conn, false)
	if err != nil {
		t.Fatal(err)
	}
	queue, sink := make(chan func(), 10_000), new(collected)
	s := New(queueLoop(queue), sock)
	s.sink = sink
	t.Cleanup(s.Close)
	s.Read()
	peer, err := net.Dial("udp", conn.LocalAddr().String())
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

// What came while the loop was busy is seen before the loop takes it, and is one batch: who is due
// right after that has been heard as well.
func TestWhatWaitsIsPendingAndOneBatch(t *testing.T) {
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
	take := next(t, queue)
	for waiting := 0; waiting < len(want); time.Sleep(time.Millisecond) {
		s.inbox.mu.Lock()
		waiting = len(s.inbox.all)
		s.inbox.mu.Unlock()
	}
	if !s.Pending() {
		t.Error("not pending")
	}
	if take(); len(sink.batches) != 1 || !slices.Equal(sink.batches[0], want) {
		t.Errorf("got %q", sink.batches)
	}
	if s.Pending() {
		t.Error("pending, and all was taken")
	}
}

// A loop that does not take what came stops the reader; then the kernel keeps the rest.
func TestReaderWaits(t *testing.T) {
	s, sink, queue, peer := newRig(t)
	const more = 100
	for i := range maxWaiting + more {
		if _, err := fmt.Fprint(peer, i); err != nil {
			t.Fatal(err)
		}
		for i < maxWaiting && !isFull(&s.inbox) { // so that the kernel drops nothing
			s.inbox.mu.Lock()
			n := len(s.inbox.all)
			s.inbox.mu.Unlock()
			if n > i {
				break
			}
			time.Sleep(10 * time.Microsecond)
		}
	}
	got := 0
	for got < maxWaiting+more {
		next(t, queue)()
		got = 0
		for _, b := range sink.batches {
			if len(b) > maxWaiting+batchSize {
				t.Fatalf("%d at once", len(b))
			}
			for _, msg := range b {
				if msg != fmt.Sprint(got) {
					t.Fatalf("got %s, want %d", msg, got)
				}
				got++
			}
		}
	}
	if n := len(sink.batches[0]); n < maxWaiting || n >= maxWaiting+batchSize || len(sink.failed) > 0 {
		t.Errorf("%d at first, errors %v", len(sink.batches[0]), sink.failed)
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

func isFull(b *inbox) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.isFull()
}
