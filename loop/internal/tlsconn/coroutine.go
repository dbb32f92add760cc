package tlsconn

import (
	"iter"

	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// maxIdle is how many coroutines a loop keeps for the next handshakes. The stack of one has grown
// to 32 KiB, and making that anew costs a twentieth of a handshake. The garbage collector shrinks
// stacks that are not used.
const maxIdle = 16

// maxKept is how much room for output such a coroutine keeps.
const maxKept = 16 << 10

// A coroutine runs handshakes, one after another. Its caller goes on when the handshake waits for
// input, and when it has ended.
type coroutine struct {
	next  func() (struct{}, bool)
	stop  func()
	yield func(struct{}) bool
	job   *handshake
	out   []byte // the room that handshakes write to
	alive bool   // a hook that calls runtime.Goexit ends it
}

// coroutine returns one that has nothing to do.
func (l *Loop) coroutine() *coroutine {
	if n := len(l.idle); n > 0 {
		co := l.idle[n-1]
		l.idle[n-1] = nil
		l.idle = l.idle[:n-1]
		return co
	}
	co := &coroutine{alive: true}
	unlocked(func() { co.next, co.stop = iter.Pull(co.run) })
	return co
}

// unlocked runs f, which makes a coroutine or switches to one. The runtime ends the process if one
// is switched to by a goroutine that is wired to its thread, and was made by one that is not, or the
// other way round. Users may wire a loop to its thread, by runtime.LockOSThread in a callback, at any
// time. Workers never are.
func unlocked(f func()) {
	if !goroutine.Locked() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (co *coroutine) run(yield func(struct{}) bool) {
	co.yield = yield
	orderly := false
	defer func() { co.alive = orderly }()
	for more := true; more; more = yield(struct{}{}) {
		co.job.run()
		co.job = nil
	}
	orderly = true
}

// reuse takes back a coroutine whose handshake has ended.
func (l *Loop) reuse(co *coroutine) {
	if co.alive && len(l.idle) < maxIdle && !l.ended {
		l.idle = append(l.idle, co)
	} else {
		unlocked(co.stop)
	}
}
