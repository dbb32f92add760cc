package tlsconn

import "syscall"

// Write implements engine.Socket. Plaintext counts as written when its ciphertext is with the raw
// socket. The rest must be given again, unchanged: it may be sealed already. Before the handshake
// is done the socket is full for all but what goes out before it.
func (c *Conn) Write(p []byte) (n int, err error) {
	switch c.state {
	case starting:
		if before := min(c.hs.before, len(p)); before > 0 {
			n, err = c.sock.Write(p[:before])
			c.hs.before -= n
		}
		return n, err
	case hello, computing, waiting:
		return 0, nil
	}
	n, err = c.pushOut()
	for n < len(p) && len(c.out) == 0 && err == nil {
		var k int
		k, err = c.seal(p[n:min(len(p), n+plainBuffer)])
		n += k
	}
	return n, err
}

// seal encrypts p and writes it. Ciphertext that the socket does not take waits in out.
func (c *Conn) seal(p []byte) (n int, err error) {
	defer c.shared.rescue(&err)
	c.out = c.shared.grow(c.out, len(p)+len(p)/32+64)
	if c.records != nil {
		c.out, err = c.crypt().Seal(c.out, p)
	} else {
		_, err = c.tls.Write(p)
	}
	if err != nil {
		return 0, err
	}
	c.plain = len(p)
	return c.pushOut()
}

// pushOut writes out, and returns how much plaintext counts as written by that. Each
// byte of ciphertext counts for one. The last byte of plaintext counts when out is empty.
func (c *Conn) pushOut() (plain int, err error) {
	if c.lost || c.state == closed {
		return 0, syscall.EPIPE
	}
	if len(c.out) > 0 {
		n, err := c.sock.Write(c.out[c.sent:])
		if err != nil {
			return 0, err
		}
		if c.sent += n; c.sent < len(c.out) {
			plain = min(n, max(0, c.plain-1))
			c.plain -= plain
			return plain, nil
		}
	}
	plain = c.plain
	c.release(&c.out)
	c.sent, c.plain = 0, 0
	if c.finQueued && c.shut {
		c.finQueued = false
		c.sock.CloseWrite()
	}
	return plain, nil
}

// flush writes what is the layer's own: handshakes, alerts. Plaintext that waits in out is counted
// by Write only, so the Host, which waits for it, is given the turn.
func (c *Conn) flush() {
	if c.lost || c.state == closed {
		return
	}
	if c.plain == 0 {
		if _, err := c.pushOut(); err != nil {
			return // reading will tell
		}
	}
	if len(c.out) > 0 && !c.armed {
		c.arm()
	}
}

// arm has Writable called, by the raw socket or a timer.
func (c *Conn) arm() {
	c.armed = true
	if !c.sock.NotifyWritable() {
		t := &retry{c}
		c.retry = t
		c.shared.cfg.After(minRetry, func() {
			if t.conn != nil {
				t.conn.Writable()
			}
		})
	}
}

// A retry has Writable called by a timer. Without a Conn it does nothing.
type retry struct{ conn *Conn }

// disarm has Writable not called, unless by the raw socket.
func (c *Conn) disarm() {
	if c.armed = false; c.retry != nil {
		c.retry.conn, c.retry = nil, nil
	}
}

// NotifyWritable implements engine.Socket. In a handshake it is HandshakeDone that tells.
func (c *Conn) NotifyWritable() bool {
	if c.state == hello || c.state == computing || c.state == waiting || c.state == starting && c.hs.before == 0 {
		return true
	}
	if c.lost || !c.sock.NotifyWritable() {
		return false
	}
	c.hostWaits, c.armed = true, true
	return true
}
