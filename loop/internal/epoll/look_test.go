//go:build linux && !386 && !s390x

package epoll

import (
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A peer that has sent something is heard before a turn that is asked for after a look at the
// sockets, by TCP's like and by UDP.
func TestAgainLooksFirst(t *testing.T) {
	r := newRig(t, 1)
	if err := r.Start(1, r.base, r); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Stop() })
	ours, theirs := unixPair(t)
	e := newEar()
	if err := r.enroll(ours, func(engine.Socket) engine.Sink { return e }); err != nil {
		t.Fatal(err)
	}
	port, boxes := servePackets(t, r, "udp", "127.0.0.1:0")
	udp, err := net.Dial("udp", port.String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	late, rounds := 0, make(chan struct{})
	turn := func(f func()) { // runs f in a turn that Again asks for
		r.mu.Lock()
		r.posts[0] = append(r.posts[0], f)
		r.mu.Unlock()
		r.Again(0)
	}
	var round func(n int)
	round = func(n int) {
		if n == 0 {
			close(rounds)
			return
		}
		turn(func() {
			turn(func() {
				theirs.Write([]byte("x"))
				udp.Write([]byte("x"))
				for end := time.Now().Add(patience); !boxes[0].to.Pending() && time.Now().Before(end); {
				}
				turn(func() {
					if len(e.heard) == 0 || len(boxes[0].peers) == 0 {
						late++
					}
					for len(e.heard) > 0 {
						<-e.heard
					}
					for len(boxes[0].peers) > 0 {
						<-boxes[0].peers
					}
					round(n - 1)
				})
			})
		})
	}
	r.do(0, func() { round(100) })
	wait(t, rounds, "the rounds")
	if late > 0 {
		t.Errorf("in %d of 100 rounds a turn came before what had been sent", late)
	}
}

// A loop that is never done with its turns still does what others have it execute.
func TestTurnsLetOthersIn(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		const asked = 80
		turns, done := 0, make(chan struct{})
		var busy func()
		busy = func() {
			select {
			case <-done:
				return
			default:
			}
			if turns++; turns == asked {
				r.loops[0].Execute(func() { close(done) })
			}
			r.mu.Lock()
			r.posts[0] = append(r.posts[0], busy)
			r.mu.Unlock()
			r.Again(0)
		}
		r.do(0, busy)
		wait(t, done, "a function beside a loop that is never done")
		r.do(0, func() {
			if turns > asked+20 {
				t.Errorf("it had to wait for %d turns", turns-asked)
			}
		})
	})
}

// unixPair returns both ends of a connection whose bytes are there as soon as they are written.
func unixPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("unix", testkit.SocketPath(t))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if b, err = net.Dial("unix", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if a, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}
