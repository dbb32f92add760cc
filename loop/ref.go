package loop

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
	if f == nil {
		panic("loop: Ref.Tell with a nil func")
	}
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	_, err := r.c.loop.post(task{told: f, c: r.c}, false)
	return err
}

// TellEventually is Tell that takes f though the mailbox is full, as Loop.PostEventually does, with
// the same duty of the caller. The errors are ErrClosed and ErrServerClosed.
func (r Ref) TellEventually(f func(c *Conn)) error {
	if f == nil {
		panic("loop: Ref.TellEventually with a nil func")
	}
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	return r.c.loop.postEventually(task{told: f, c: r.c})
}

// TellOr is Tell that says when f was dropped: of f and dropped exactly one is called, on the loop,
// if the error is nil; neither, if not. dropped is called in the place of f, when the connection
// has closed before. A panic in dropped is logged and counted. A nil func panics here.
func (r Ref) TellOr(f func(c *Conn), dropped func()) error {
	if f == nil || dropped == nil {
		panic("loop: Ref.TellOr with a nil func")
	}
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	c := r.c
	return c.loop.Post(func() {
		if !c.isOpen() {
			dropped()
			return
		}
		c.loop.current = c // which a panic closes
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
