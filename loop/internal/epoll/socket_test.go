//go:build linux && !386 && !s390x

package epoll

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

func TestSocketTalkClose(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		addr, accepted := listen(t)
		ear := newEar()
		sock := r.connect(addr, ear)
		peer := wait(t, accepted, "accept")
		peer.Write([]byte("hello"))
		if got := wait(t, ear.heard, "input"); got != "hello" {
			t.Errorf("heard %q", got)
		}
		r.do(0, func() { sock.Write([]byte("you ")); sock.Write([]byte("there")) })
		if got := readFull(t, peer, 9); string(got) != "you there" {
			t.Errorf("the peer got %q", got)
		}
		peer.Close()
		if err := wait(t, ear.closed, "the end"); !errors.Is(err, io.EOF) {
			t.Errorf("closed with %v", err)
		}
	})
}

func TestSocketFullSocket(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		addr, accepted := listen(t)
		ear := newEar()
		sock := r.connect(addr, ear)
		peer := wait(t, accepted, "accept")
		n := r.fill(sock, ear)
		readFull(t, peer, n)
		wait(t, ear.writable, "writable")
		// With input and room at once, and again.
		r.flood(sock)
		r.do(0, func() { sock.NotifyWritable() })
		peer.Write([]byte("x"))
		wait(t, ear.heard, "input while the socket is full")
		peer.SetLinger(0)
		peer.Close()
		wait(t, ear.closed, "the reset")
	})
}

// fill floods a socket until it takes nothing more: a busy kernel may move what it has taken to the
// peer only later, and then there is room again. It returns how much that is.
func (r *rig) fill(s engine.Socket, e *ear) (n int) {
	r.t.Helper()
	for {
		k := r.flood(s)
		if n += k; k == 0 {
			r.t.Fatal("writable while it is full")
		}
		r.do(0, func() {
			if !s.NotifyWritable() {
				r.t.Error("cannot tell")
			}
		})
		select {
		case <-e.writable:
		case <-time.After(10 * time.Millisecond):
			return n
		}
	}
}

func TestSocketPauseAndHalfClose(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		addr, accepted := listen(t)
		ear := newEar()
		sock := r.connect(addr, ear)
		peer := wait(t, accepted, "accept")
		for range 20 {
			r.do(0, func() {
				if err := sock.Pause(); err != nil {
					t.Error(err)
				}
			})
			peer.Write([]byte("later"))
			r.do(0, func() {})
			select {
			case got := <-ear.heard:
				t.Fatalf("heard %q while paused", got)
			default:
			}
			r.do(0, sock.Resume)
			if got := wait(t, ear.heard, "input after the pause"); got != "later" {
				t.Fatalf("heard %q", got)
			}
		}
		r.do(0, sock.CloseWrite)
		if n, err := peer.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("the peer read %d, %v", n, err)
		}
		peer.Write([]byte("still"))
		if got := wait(t, ear.heard, "input after CloseWrite"); got != "still" {
			t.Errorf("heard %q", got)
		}
		peer.Close()
		if err := wait(t, ear.closed, "the end"); !errors.Is(err, io.EOF) {
			t.Errorf("closed with %v", err)
		}
	})
}

// A paused socket that ends in order keeps what it has; one that is reset is told.
func TestSocketPausedEnds(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		addr, accepted := listen(t)
		first, second := newEar(), newEar()
		sock := r.connect(addr, first)
		peer := wait(t, accepted, "accept")
		r.do(0, func() { sock.Pause(); sock.CloseWrite() })
		peer.Write([]byte("last words"))
		peer.Close()
		r.do(0, func() {})
		r.do(0, sock.Resume)
		if got := wait(t, first.heard, "what came before the end"); got != "last words" {
			t.Errorf("heard %q", got)
		}
		wait(t, first.closed, "the end")

		sock = r.connect(addr, second)
		peer = wait(t, accepted, "accept")
		r.do(0, func() { sock.Pause() })
		peer.SetLinger(0)
		peer.Close()
		if err := wait(t, second.closed, "the reset"); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("closed with %v", err)
		}
	})
}
