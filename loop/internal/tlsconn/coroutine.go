package tlsconn

// A coroutine runs a handshake. It does cheap work while its caller waits, until the handshake
// waits for input or has ended. It does other work beside its caller, and calls a function in the
// end: there is no goroutine between the two that would have to be woken.
//
// It is a goroutine, and not one of iter.Pull, which the runtime lets nobody switch to who is wired
// to his thread. Users may wire a loop, by runtime.LockOSThread in a callback, at any time, and to
// ask for that, which runtime.Stack tells, takes longer than to switch by channels.
type coroutine struct {
	resume chan struct{} // with room for one: who has it go on does not wait until it does
	yields chan struct{} // with room for one
	beside func()        // not nil: nobody waits, and this is called in place of that
}

// newCoroutine returns one that runs job when it is resumed.
func newCoroutine(job func()) *coroutine {
	co := &coroutine{resume: make(chan struct{}, 1), yields: make(chan struct{}, 1)}
	go func() {
		defer co.yield() // also if a hook calls runtime.Goexit
		<-co.resume
		job()
	}()
	return co
}

// yield tells who is to know that it waits, or has done its job.
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
