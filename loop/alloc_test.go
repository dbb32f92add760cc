//go:build !race

package loop

import (
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
)

// An echoed message allocates nothing, with the codec, the idle timeout and the limits of a real
// server.
func TestEchoDoesNotAllocate(t *testing.T) {
	for _, cd := range []codec.Codec{codec.Length{}, codec.Lines{}, codec.Raw{}} {
		r := newRig(t, &Server{Codec: cd, IdleTimeout: time.Minute}, HandlerFunc(echoAll))
		_, s, sock := r.connect()
		packet, _ := cd.AppendFrame(nil, make([]byte, 64))
		half := len(packet) / 2
		if n := testing.AllocsPerRun(1000, func() { s.Readable(packet) }); n != 0 {
			t.Errorf("%T: %v allocations for each message", cd, n)
		}
		if n := testing.AllocsPerRun(1000, func() { s.Readable(packet[:half]); s.Readable(packet[half:]) }); n != 0 {
			t.Errorf("%T: %v allocations for each message in two pieces", cd, n)
		}
		if sock.taken < 2000*len(packet) {
			t.Errorf("%T: only %d bytes came back", cd, sock.taken)
		}
	}
}

// Timers, posts, tells and hooks at a steady state do not allocate more than the closures that they
// are given.
func TestTimersAndPostsDoNotAllocate(t *testing.T) {
	r := newRig(t, &Server{}, HandlerFunc(echoAll))
	c, _, _ := r.connect()
	ref, f, told := c.Ref(), func() {}, func(*Conn) {}
	for name, call := range map[string]func(){
		"Loop.AfterFunc, Stop": func() { r.AfterFunc(time.Hour, f).Stop() },
		"Conn.AfterFunc, Stop": func() { c.AfterFunc(time.Hour, f).Stop() },
		"Conn.Every, Stop":     func() { c.Every(time.Hour, f).Stop() },
		"AfterFunc that fires": func() { c.AfterFunc(0, f); r.pass(time.Millisecond); r.turn() },
		"Post":                 func() { _ = r.Post(f); r.turn() },
		"Tell":                 func() { _ = ref.Tell(told); r.turn() },
		"SetIdleTimeout":       func() { c.SetIdleTimeout(time.Hour) },
	} {
		call()
		call()
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
