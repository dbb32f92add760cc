//go:build linux && !386 && !s390x

package epoll

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// rally is a pipe whose reader, when it has heard something, writes again, for so many times; and a
// host that writes once more when the loop has found nothing any more.
type rally struct {
	engine.Host
	t     *testing.T
	loop  *epollLoop
	in    int
	out   *os.File
	heard int
	more  int
}

func (r *rally) polled(uint32) {
	var p [1]byte
	if n, err := unix.Read(r.in, p[:]); n != 1 || err != nil {
		r.t.Errorf("read %d, %v", n, err)
	}
	switch r.heard++; {
	case r.heard <= r.more:
		r.write()
	case r.heard == r.more+1:
		r.loop.again = true
	}
}

func (r *rally) release() {}

func (r *rally) write() {
	if _, err := r.out.Write([]byte("x")); err != nil {
		r.t.Error(err)
	}
}

func (*rally) OnProbe() {}

func (r *rally) OnWake() {
	if !r.loop.disarmed {
		r.t.Error("Go's poller hears of a loop that is busy")
	}
	r.write()
}

// What comes just before the loop lets Go's poller hear of it again is found: the kernel tells
// nobody.
func TestArmingLooksOnceMore(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	r := &rally{t: t, in: int(in.Fd()), out: out, more: 2 * disarmAfter}
	l := bareLoop(t, r)
	if _, err := l.add(r.in, unix.EPOLLIN, r); err != nil {
		t.Fatal(err)
	}
	r.loop = l
	r.write()
	l.rounds(0)
	if want := r.more + 2; r.heard != want {
		t.Errorf("heard %d times, want %d", r.heard, want)
	}
	if l.disarmed {
		t.Error("Go's poller does not hear of a loop that waits")
	}
}
