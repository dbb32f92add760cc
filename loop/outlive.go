package loop

// waitsForShare reports whether there is input that only waits for its turn.
func (c *Conn) waitsForShare() bool {
	return c.in.queued && c.isOpen() && c.in.pauses&^(pausedForShare|pausedSocket) == 0 && c.in.decoder.Buffered() > 0
}

// outlive keeps c open after its socket has gone, until the input that came before is delivered, in
// shares as ever: a peer must not get more of the loop at once by a reset. What is sent meanwhile
// goes where what is sent to such a peer goes.
func (c *Conn) outlive(err error) {
	x := c.more()
	x.broken = err
	c.keepTLS()
	c.sock = goneSocket{}
	c.in.ended = true
	c.releaseOutput()
}

// isBroken reports whether c outlives its socket.
func (c *Conn) isBroken() bool { return c.extras != nil && c.extras.broken != nil }

// A goneSocket is an engine.Socket in place of one that does not exist any more. It takes
// everything.
type goneSocket struct{}

func (goneSocket) Write(p []byte) (int, error) { return len(p), nil }

func (goneSocket) Writev(bufs [][]byte) (n int, err error) {
	for _, b := range bufs {
		n += len(b)
	}
	return n, nil
}

func (goneSocket) NotifyWritable() bool { return false }
func (goneSocket) Pending() bool        { return false }
func (goneSocket) Unsent() int          { return 0 }
func (goneSocket) Pause() error         { return nil }
func (goneSocket) Resume()              {}
func (goneSocket) CloseWrite()          {}
func (goneSocket) Linger() bool         { return false }
func (goneSocket) Close(bool)           {}
