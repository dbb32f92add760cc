package loop

import "github.com/loopwheel/loopwheel/loop/internal/meter"

// This file is how other goroutines reach a loop: Post, and Ref.Tell, by the loop's mailbox.

// A task is a function for the loop: f for the loop itself, or told for a connection.
type task struct {
	f    func()
	told func(*Conn)
	c    *Conn
}

// Post has f run on the loop, after what was told and posted to it before, and never inline. Any
// goroutine may call it, the loop's own too: work that takes long goes on in pieces if each one
// posts the next, which runs in the next turn, when timers and sockets have had theirs. nil means
// that f will run: a loop empties its mailbox before it ends. ErrMailboxFull: Server.MaxMailbox
// functions wait already. ErrServerClosed: the loop is ending. A panic in f is logged and counted.
// A nil f panics here.
func (l *Loop) Post(f func()) error {
	needFunc("Loop.Post", f != nil)
	_, err := l.post(task{f: f}, false)
	return err
}

// postUrgent posts a task that no limit stops: of the framework's own, mostly.
func (l *Loop) postUrgent(f func()) error {
	_, err := l.post(task{f: f}, true)
	return err
}

func (l *Loop) post(t task, urgent bool) (number uint64, err error) {
	if number, err = l.mail.Put(t, urgent); err == nil {
		l.schedule()
	}
	return number, err
}

// hasRun waits until a function that was posted closes done, which it reports, or the loop has
// ended without running it. When both have happened the function has run.
func (l *Loop) hasRun(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-l.ended:
	}
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// PostEventually is Post that takes f though the mailbox is full, in its place after what was
// posted before. It is for what somebody waits for, such as an answer or an end, and would wait for
// ever if it were refused. No limit holds, so the caller bounds how many there may be: one for each
// request that was let in, say. The only error is ErrServerClosed. Any goroutine may call it. A nil
// f panics.
func (l *Loop) PostEventually(f func()) error {
	needFunc("Loop.PostEventually", f != nil)
	return l.postUrgent(f)
}

// PostPieces is Post for work that takes long and must keep its place in the mailbox. f is called
// until it returns false, and what was posted after it waits. Between two calls the loop writes
// what was sent, and when a millisecond is over it polls its sockets and runs its timers.
//
// The number counts what was put into the mailbox: between n and n+1 there is nothing else. The
// errors are Post's. Any goroutine may call it. A nil f panics.
func (l *Loop) PostPieces(f func() (more bool)) (number uint64, err error) {
	needFunc("Loop.PostPieces", f != nil)
	return l.post(task{f: func() { l.unfinished = f() }}, false)
}

// A Ref is an address of a connection: what other goroutines hold instead of a Conn. Refs are
// comparable; two are equal if they mean the same connection. The zero Ref means none. A Ref keeps
// a closed Conn's few hundred bytes alive, but neither its handler nor its buffers.
type Ref struct{ c *Conn }

// Tell has f run on the connection's loop, with the connection, after what was told and posted to
// that loop before, and never inline. Any goroutine may call it, a callback of the same connection
// too.
//
// nil means queued; if the connection closes first, f is dropped. ErrClosed: it is closed, or r is
// the zero Ref. ErrMailboxFull and ErrServerClosed are Loop.Post's. A panic in f closes the
// connection. A nil f panics here.
func (r Ref) Tell(f func(c *Conn)) error {
	needFunc("Ref.Tell", f != nil)
	return r.tell(f, false)
}

func (r Ref) tell(f func(c *Conn), urgent bool) error {
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	_, err := r.c.loop.post(task{told: f, c: r.c}, urgent)
	return err
}

// TellEventually is Tell that takes f though the mailbox is full, as Loop.PostEventually does, with
// the same duty of the caller. The errors are ErrClosed and ErrServerClosed.
func (r Ref) TellEventually(f func(c *Conn)) error {
	needFunc("Ref.TellEventually", f != nil)
	return r.tell(f, true)
}

// TellOr is Tell that says when f was dropped: of f and dropped exactly one is called, on the loop,
// if the error is nil; neither, if not. dropped is called in the place of f, when the connection
// has closed before. A panic in dropped is logged and counted. A nil func panics here.
func (r Ref) TellOr(f func(c *Conn), dropped func()) error {
	needFunc("Ref.TellOr", f != nil && dropped != nil)
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	c := r.c
	return c.loop.Post(func() {
		if !c.isOpen() {
			dropped()
			return
		}
		c.loop.runs(c, meter.Tell) // which a panic closes
		f(c)
	})
}

// ID returns Conn.ID, or 0 for the zero Ref. Any goroutine may call it.
func (r Ref) ID() uint64 {
	if r.c == nil {
		return 0
	}
	return r.c.id
}
