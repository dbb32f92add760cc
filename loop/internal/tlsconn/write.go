package tlsconn

import (
	"syscall"
	"time"
)

// Write implements engine.Socket. Plaintext counts as written when its ciphertext is with the raw
// socket. What is not must be given again, and has not changed then: it may be sealed already.
func (c *Conn) Write(p []byte) (int, error) {
	n, more, err := c.pushOut()
	if err != nil || more {
		return n, err
	}
	k, err := c.seal(p[n:])
	return n + k, err
}

// Writev implements engine.Socket.
func (c *Conn) Writev(bufs [][]byte) (int, error) {
	total, more, err := c.pushOut()
	if err != nil || more {
		return total, err
	}
	skip := total
	for _, b := range bufs {
		if skip >= len(b) {
			skip -= len(b)
			continue
		}
		n, err := c.seal(b[skip:])
		total += n
		if err != nil || n < len(b)-skip {
			return total, err
		}
		skip = 0
	}
	return total, nil
}

// seal encrypts p and writes it, a buffer of the loop at a time.
func (c *Conn) seal(p []byte) (done int, err error) {
	l := c.loop
	l.buffers()
	for len(p) > 0 && len(c.out) == 0 {
		k := min(len(p), plainBuffer)
		if err := c.sealBatch(p[:k]); err != nil {
			return done, err
		}
		if b := &l.batch; b.stuck {
			c.out = append(l.get(len(b.waits)), b.waits...)
			c.chunks = append(c.chunks, b.chunks...)
			return done + c.taken(b.taken), b.err
		}
		done += k
		p = p[k:]
	}
	return done, nil
}

// sealBatch makes records of p, and writes them. The one that is not full comes first, so that the
// last one is as long as can be: it is not copied.
func (c *Conn) sealBatch(p []byte) error {
	c.sealing = true
	defer func() { c.sealing = false }()
	b := &c.loop.batch
	b.begin()
	n := (len(p)-1)%maxPlain + 1
	for len(p) > 0 {
		b.left = len(p)
		if _, err := c.tls.Write(p[:n]); err != nil {
			return err
		}
		b.chunks = append(b.chunks, chunk{end: len(b.waits), plain: n})
		p = p[n:]
		n = maxPlain
	}
	return nil
}

// queue adds ciphertext to out.
func (c *Conn) queue(p []byte) {
	if len(p) > 0 {
		c.out = c.extend(c.out, p)
	}
}

// pushOut writes what waits in out. It returns how much plaintext that has finished, and whether
// there is more.
func (c *Conn) pushOut() (plain int, more bool, err error) {
	if c.lost || c.state == closed {
		return 0, false, syscall.EPIPE
	}
	if len(c.out) == 0 {
		return 0, false, nil
	}
	n, err := c.sock.Write(c.out[c.sent:])
	if err != nil {
		return 0, true, err
	}
	return c.taken(n), len(c.out) > 0, nil
}

// taken notes that the raw socket has taken n bytes more of out, and returns how much plaintext was
// finished by that.
func (c *Conn) taken(n int) (plain int) {
	c.sent += n
	done := 0
	for _, k := range c.chunks {
		if k.end > c.sent {
			break
		}
		plain += k.plain
		done++
	}
	c.chunks = c.chunks[done:]
	if c.sent == len(c.out) {
		c.release(&c.out)
		c.sent, c.chunks = 0, nil
		if c.finQueued {
			c.finQueued = false
			c.sock.CloseWrite()
		}
	}
	return plain
}

// flush writes what is the layer's own: handshakes, alerts. Plaintext that waits in out is finished
// by Write only, which can tell; so the sink, which waits for it, is given the turn.
func (c *Conn) flush() {
	if c.lost || c.state == closed {
		return
	}
	if len(c.chunks) == 0 && len(c.out) > 0 {
		if _, _, err := c.pushOut(); err != nil {
			return // reading will tell
		}
	} else if len(c.out) == 0 && c.finQueued {
		c.finQueued = false
		c.sock.CloseWrite()
	}
	if len(c.out) > 0 && !c.armed {
		c.arm(minRetry)
	}
}

// arm has the rest of out written.
func (c *Conn) arm(d time.Duration) {
	c.armed = true
	if c.sock.NotifyWritable() {
		return
	}
	c.loop.after(d, func() {
		if c.state == closed || c.lost || !c.armed {
			return
		}
		c.Writable()
	})
}

// NotifyWritable implements engine.Socket.
func (c *Conn) NotifyWritable() bool {
	if c.lost || !c.sock.NotifyWritable() {
		return false
	}
	c.sinkWaits, c.armed = true, true
	return true
}
