package loop

import (
	"testing"
	"time"
)

// A drain that is spread over a window closes all within it, in steps that are not too short.
func TestSpread(t *testing.T) {
	for _, test := range []struct {
		n      int
		window time.Duration
		every  time.Duration
		batch  int
	}{
		{0, time.Second, 0, drainBatch}, {1000, 0, 0, drainBatch}, {10, time.Second, 100 * time.Millisecond, 1},
		{1000, time.Second, drainStep, 10}, {1_000_000, 10 * time.Second, drainStep, 1000}, {3, time.Millisecond, drainStep, 30},
	} {
		if every, batch := spread(test.n, test.window); every != test.every || batch != test.batch {
			t.Errorf("%d in %v: %d each %v, want %d each %v", test.n, test.window, batch, every, test.batch, test.every)
		}
	}
}

// What an engine passes on without a copy counts for both connections, and for the pipe, as if it
// had been read and written.
func TestPassedCounts(t *testing.T) {
	r := newRig(t, &Server{}, HandlerFunc(echoAll))
	a, _, _ := r.connect()
	b, _, to := r.connect()
	Pipe(a, b, PipeConfig{IdleTimeout: time.Hour})
	s := a.extras.pipe
	r.pass(time.Second)
	to.room = 0
	s.Passed(100, []byte("the rest"))
	now := r.Loop.now
	if now < time.Second || a.idle.lastRead != now || b.idle.lastWrite != now || b.idle.lastRead != notYet {
		t.Errorf("at %v: read %v, written %v", now, a.idle.lastRead, b.idle.lastWrite)
	}
	if in, out := r.count[numBytesIn], r.count[numBytesOut]; in != 108 || out != 100 || s.bytes != 108 || b.pending() != 8 {
		t.Errorf("%d bytes in, %d out, %d by the pipe, %d wait", in, out, s.bytes, b.pending())
	}
	r.pass(time.Second)
	to.room = -1
	b.out.box.Blocked = true
	if s.Passed(0, []byte("more")); b.idle.lastWrite != now || a.idle.lastRead == now {
		t.Errorf("what was not taken was written at %v, and read at %v", b.idle.lastWrite, a.idle.lastRead)
	}
}
