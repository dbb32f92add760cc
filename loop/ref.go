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

// ID returns Conn.ID, or 0 for the zero Ref. Any goroutine may call it.
func (r Ref) ID() uint64 {
	if r.c == nil {
		return 0
	}
	return r.c.id
}
