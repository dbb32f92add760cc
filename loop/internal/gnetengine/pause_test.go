//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// accept returns both ends of a connection on loop 0: ours, whose input e hears, and the peer's.
func accept(t *testing.T, r *rig, e *ear) (engine.Socket, net.Conn) {
	t.Helper()
	addr, accepted := listen(t)
	peer, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	var sock engine.Socket
	if err := r.enroll(wait(t, accepted, "a connection"), func(s engine.Socket) engine.Sink {
		sock = s
		return e
	}); err != nil {
		t.Fatal(err)
	}
	return sock, peer
}

// What is paused hears nothing until it is resumed, and all of it then.
func TestPauses(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		e := newEar()
		sock, peer := accept(t, r, e)
		for round := range 5 {
			r.do(0, func() {
				if err := sock.Pause(); err != nil {
					t.Error(err)
				}
			})
			if _, err := peer.Write([]byte{'a' + byte(round)}); err != nil {
				t.Fatal(err)
			}
			r.do(0, func() {}) // the loop has looked at its sockets since
			if len(e.heard) > 0 {
				t.Fatal("a paused socket was read")
			}
			r.do(0, func() { sock.Resume() })
			if got := wait(t, e.heard, "what was written meanwhile"); got != string(rune('a'+round)) {
				t.Fatalf("round %d: heard %q", round, got)
			}
		}
		r.do(0, func() { sock.Close(false) })
	})
}

// A socket that has ended in both directions while it was paused hears, when it is resumed, what
// came and then one end. Its loop has time for others, although the sink lets it linger.
func TestPausedSocketEndsOnce(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		e := &lingerer{ear: newEar()}
		var peer net.Conn
		e.sock, peer = accept(t, r, e.ear)
		r.do(0, func() {
			e.sock.Divert(e)
			if err := e.sock.Pause(); err != nil {
				t.Error(err)
			}
			e.sock.CloseWrite()
		})
		if _, err := io.Copy(io.Discard, peer); err != nil { // until it has ended
			t.Fatal(err)
		}
		if _, err := peer.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		peer.Close()
		for ended := false; !ended; { // the system may need a moment
			r.do(0, func() {
				_, err := unix.Getpeername(e.sock.(*socket).FD())
				ended = err != nil
			})
		}
		r.do(0, func() { e.sock.Resume() })
		if got := wait(t, e.heard, "what came before the end"); got != "last words" {
			t.Errorf("heard %q", got)
		}
		if err := wait(t, e.closed, "the end"); err != io.EOF {
			t.Error(err)
		}
		r.do(0, func() { e.sock.Close(false) })
		if len(e.closed) > 0 {
			t.Error("it has ended twice")
		}
	})
}

// lingerer is an ear whose socket lingers after the end.
type lingerer struct {
	*ear
	sock engine.Socket
}

func (l *lingerer) Closed(err error) {
	l.sock.Linger()
	l.ear.Closed(err)
}

// A unix socket that is reset while it is paused, as its peer has not read everything, still has
// what was sent before: it is heard first, and the end only then.
func TestPausedUnixSocketKeepsWhatCame(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		ln, err := net.Listen("unix", testkit.SocketPath(t))
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		peer, err := net.Dial("unix", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		nc, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		e := newEar()
		var sock engine.Socket
		if err := r.enroll(nc, func(s engine.Socket) engine.Sink { sock = s; return e }); err != nil {
			t.Fatal(err)
		}
		r.do(0, func() {
			if err := sock.Pause(); err != nil {
				t.Error(err)
			}
			if _, err := sock.Write([]byte("never read")); err != nil {
				t.Error(err)
			}
		})
		if _, err := peer.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		peer.Close()
		r.do(0, func() {})
		r.do(0, func() { // the loop has looked at its sockets since
			if len(e.heard) > 0 || len(e.closed) > 0 {
				t.Errorf("paused, it heard %d times and ended %d times", len(e.heard), len(e.closed))
			}
			sock.Resume()
		})
		if got := wait(t, e.heard, "what came before the reset"); got != "last words" {
			t.Errorf("heard %q", got)
		}
		wait(t, e.closed, "the end")
	})
}

// Turns that ask for another, without end, leave room for sockets: Wake would not.
func TestAgainLooksAtTheSockets(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		e := newEar()
		sock, peer := accept(t, r, e)
		heard, turns := make(chan struct{}), 0
		var busy func()
		busy = func() {
			if len(e.heard) > 0 {
				close(heard)
				return
			}
			if turns++; turns == 3 {
				if _, err := peer.Write([]byte("x")); err != nil {
					t.Error(err)
				}
			}
			r.mu.Lock()
			r.posts[0] = append(r.posts[0], busy)
			r.mu.Unlock()
			r.Again(0)
		}
		r.do(0, busy)
		wait(t, heard, "a socket beside a loop that is never done")
		r.do(0, func() { sock.Close(false) })
	})
}
