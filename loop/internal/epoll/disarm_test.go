//go:build linux && !386 && !s390x

package epoll

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rally is a pipe whose reader, when it has heard something, writes again, for so many times; and a
// host that writes once more when the loop has found nothing any more.
type rally struct {
	*rig
	loop  *eventLoop
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

func (*rally) OnProbe(int) {}

func (r *rally) OnWake(int) {
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
	r := &rally{rig: newRig(t, 1), in: int(in.Fd()), out: out, more: 2 * disarmAfter}
	l, err := newLoop(&Engine{host: r}, 0, time.Now())
	defer l.close()
	if err == nil {
		_, err = l.add(r.in, unix.EPOLLIN, r)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.loop = l
	r.write()
	l.rounds(0)
	if want := r.more + 2; r.heard != want || l.disarmed {
		t.Errorf("heard %d times, want %d; disarmed %v", r.heard, want, l.disarmed)
	}
}

// Nothing is missed by a loop that is busy now and then, so that Go's poller hears of it, or not.
func TestNothingIsMissedWhileDisarmed(t *testing.T) {
	const peers, rounds = 4, 2000
	engines(t, 1, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		for range peers {
			ours, theirs := r.dialled(t)
			wg.Go(func() {
				for i := range rounds {
					msg := fmt.Sprint(i)
					if _, err := theirs.Write([]byte(msg)); err != nil {
						t.Error(err)
						return
					}
					ours.hears(t, msg)
				}
			})
		}
		wg.Wait()
	})
}
