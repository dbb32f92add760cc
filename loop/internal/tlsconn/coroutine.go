package tlsconn

// maxIdle is how many coroutines a loop keeps for the next handshakes. The stack of one has grown
// to 32 KiB, and making that anew costs a twentieth of a handshake. The garbage collector shrinks
// stacks that are not used.
const maxIdle = 16

// maxKept is how much room for output such a coroutine keeps.
const maxKept = 16 << 10

// A coroutine runs handshakes, one after another. It does cheap work while its caller waits, until
// the handshake waits for input or has ended. It does other work beside its caller, and calls a
// function in the end: there is no goroutine between the two that would have to be woken.
//
// It is a goroutine, and not one of iter.Pull, which the runtime lets nobody switch to who is wired
// to his thread. Users may wire a loop, by runtime.LockOSThread in a callback, at any time, and to
// ask for that, which runtime.Stack tells, takes longer than to switch by channels.
type coroutine struct {
	resume chan struct{} // with room for one: who has it go on does not wait until it does
	yields chan struct{} // with room for one
	beside func()        // not nil: nobody waits, and this is called in place of that
	job    *handshake
	out    []byte // the room that handshakes write to
	alive  bool   // a hook that calls runtime.Goexit ends it
}

// coroutine returns one that has nothing to do.
func (l *Loop) coroutine() *coroutine {
	if n := len(l.idle); n > 0 {
		co := l.idle[n-1]
		l.idle[n-1] = nil
		l.idle = l.idle[:n-1]
		return co
	}
	co := &coroutine{alive: true, resume: make(chan struct{}, 1), yields: make(chan struct{}, 1)}
	go co.run()
	return co
}

func (co *coroutine) run() {
	defer func() {
		if co.alive = false; co.job != nil {
			co.yield()
		}
	}()
	for range co.resume {
		co.job.run()
		co.job = nil
		co.yield()
	}
}

// yield tells who is to know that it waits, or has done its job. From then on others may use it.
func (co *coroutine) yield() {
	if told := co.beside; told != nil {
		co.beside = nil
		told()
		return
	}
	co.yields <- struct{}{}
}

// next runs it until it waits, or has done its job.
func (co *coroutine) next() {
	co.resume <- struct{}{}
	<-co.yields
}

// wait is called within: it suspends the coroutine until it is to go on. False: stop was called.
func (co *coroutine) wait() bool {
	co.yield()
	_, ok := <-co.resume
	return ok
}

// stop ends it when its job is done. A job that waits gets no more.
func (co *coroutine) stop() { close(co.resume) }

// reuse takes back a coroutine whose handshake has ended. One on which code of the user's has run
// may be wired to its thread, which ends with it then.
func (l *Loop) reuse(co *coroutine, foreign bool) {
	if co.alive && !foreign && len(l.idle) < maxIdle && !l.ended {
		l.idle = append(l.idle, co)
	} else {
		co.stop()
	}
}
