//go:build linux && !386 && !s390x

package epoll

import (
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// What other goroutines ask a loop for is done, whether it sleeps or is busy.
func TestRequestsWakeTheLoop(t *testing.T) {
	engines(t, 2, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		var ran [2]int
		for range 8 {
			wg.Go(func() {
				for i := range 500 {
					r.do(i%2, func() { ran[i%2]++ })
					done := make(chan struct{})
					r.loops[i%2].Execute(func() { ran[i%2]++; close(done) })
					wait(t, done, "a task")
				}
			})
		}
		wg.Wait()
		r.do(0, func() {})
		if ran != [2]int{4000, 4000} {
			t.Errorf("%v ran, of 4000 on each loop", ran)
		}
	})
}

// One that asks a loop for something just when it is about to wait is heard, though nobody else is
// going to wake it.
func TestWhoComesLastIsHeard(t *testing.T) {
	engines(t, 2, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		for i, l := range r.loops {
			wg.Go(func() {
				for n := range 10_000 {
					if n%2 == 0 {
						r.do(i, func() {})
						continue
					}
					done := make(chan struct{})
					l.Execute(func() { close(done) })
					wait(t, done, "a task")
				}
			})
		}
		wg.Wait()
	})
}

// A loop that asks for another turn looks at its sockets before, and does not sleep.
func TestAgainComesBehindTheSockets(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		sink, peer := r.dialled(t)
		heard := make(chan struct{})
		var turn func()
		turn = func() {
			if len(sink.heard) != 0 {
				close(heard)
				return
			}
			r.mu.Lock()
			r.posts[0] = append(r.posts[0], turn)
			r.mu.Unlock()
			r.Again(0)
		}
		r.do(0, turn)
		if _, err := peer.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		wait(t, heard, "a loop that asks for turns")
	})
}

// To wake a loop that has ended does no harm: its descriptors may be another's by then.
func TestWakeAfterTheEnd(t *testing.T) {
	r := newRig(t, 1)
	e := r.Engine
	if err := e.Start(1, r.base, r); err != nil {
		t.Fatal(err)
	}
	if err := e.Stop(); err != nil {
		t.Fatal(err)
	}
	for range 20 { // take the numbers that have become free
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer out.Close()
		defer func() {
			if fd := sockets.Descriptor(in.Fd()); fd.Pending() {
				t.Error("something was written into another's file")
			}
		}()
	}
	_ = e.Wake(0)
	e.loops[0].Execute(func() { t.Error("ran") })
}

// dialled connects loop 0 to a peer.
func (r *rig) dialled(t *testing.T) (*ear, net.Conn) {
	t.Helper()
	addr, accepted := listen(t)
	sink := newEar()
	r.connect(addr, sink)
	peer := wait(t, accepted, "the peer")
	t.Cleanup(func() { _ = peer.Close() })
	return sink, peer
}

// told is a pollee that does something when it is told of an event.
type told func()

func (f told) polled(uint32) { f() }
func (told) release()        {}

// An event that was taken together with the one that has ended its socket reaches nobody, not even
// what has begun to be watched meanwhile.
func TestEventsOfWhatHasEnded(t *testing.T) {
	l, err := newLoop(&Engine{host: newRig(t, 1)}, 0, time.Now())
	defer l.close()
	if err != nil {
		t.Fatal(err)
	}
	var pipes [3][2]*os.File
	for i := range pipes {
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer out.Close()
		pipes[i] = [2]*os.File{in, out}
	}
	watch := func(i int, f func()) int32 {
		place, err := l.add(int(pipes[i][0].Fd()), unix.EPOLLIN, told(f))
		if err != nil {
			t.Fatal(err)
		}
		return place
	}
	var places [2]int32
	calls := 0
	for i := range places {
		places[i] = watch(i, func() { // both have an event: the first that hears of it ends both
			calls++
			l.remove(places[0], int(pipes[0][0].Fd()))
			l.remove(places[1], int(pipes[1][0].Fd()))
			watch(2, func() { t.Error("what is new was told of an event of what has ended") })
		})
		if _, err := pipes[i][1].Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	l.rounds(0)
	if calls != 1 {
		t.Errorf("%d events of two that end each other", calls)
	}
}
