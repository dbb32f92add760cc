//go:build linux && !386 && !s390x

package epoll

import (
	"os"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"

	"golang.org/x/sys/unix"
)

// bareLoop returns a loop that no goroutine runs.
func bareLoop(t *testing.T, host engine.Host) *epollLoop {
	t.Helper()
	l, err := newLoop(host, 0, time.Now())
	t.Cleanup(l.close)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A deadline that becomes later does not change when the loop ends its waiting, so that one that
// messages move on costs nothing.
func TestDeadlineIsSetOnlyEarlier(t *testing.T) {
	l := bareLoop(t, nil)
	for _, step := range []struct{ tick, deadline time.Duration }{
		{3 * time.Hour, 3 * time.Hour}, {4 * time.Hour, 3 * time.Hour}, {engine.Never, 3 * time.Hour},
		{time.Hour, time.Hour}, {2 * time.Hour, time.Hour},
	} {
		l.tick = step.tick
		l.rounds(0)
		if l.deadline != step.deadline {
			t.Errorf("with a tick in %v it waits for %v, want %v", step.tick, l.deadline, step.deadline)
		}
	}
}

// A told is a pollee that calls a function on each event.
type told func()

func (f told) polled(uint32) { f() }
func (told) release()        {}

// An event that was taken together with the one that has ended its socket reaches nobody, not even
// what has begun to be watched meanwhile.
func TestEventsOfWhatHasEnded(t *testing.T) {
	l := bareLoop(t, nil)
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
