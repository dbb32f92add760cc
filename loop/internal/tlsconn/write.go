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
	if total == 0 && len(bufs) == 2 && len(bufs[0]) > 0 && len(bufs[0]) < maxPlain {
		return c.sealJoined(bufs[0], bufs[1])
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

// sealJoined is seal for a message and what comes before it, mostly a few bytes that say how long
// it is. They are no record of their own: the first one, which is not full, is put together from
// both.
func (c *Conn) sealJoined(head, body []byte) (int, error) {
	n := max(0, (len(head)+len(body)-1)%maxPlain+1-len(head)) // so the records behind it are full
	first := append(append(c.loop.get(len(head)+n), head...), body[:n]...)
	defer c.loop.put(first)
	return c.sealBehind(first, body[n:])
}

// seal encrypts p and writes it.
func (c *Conn) seal(p []byte) (done int, err error) {
	n := 0 // the record that is not full comes first, as the last one is not copied
	if len(p) > 0 {
		n = (len(p)-1)%maxPlain + 1
	}
	return c.sealBehind(p[:n], p[n:])
}

// sealBehind encrypts and writes first, which is at most a record, and p behind it, a buffer of the
// loop at a time.
func (c *Conn) sealBehind(first, p []byte) (done int, err error) {
	l := c.loop
	l.buffers()
	for len(first)+len(p) > 0 && len(c.out) == 0 {
		k := len(p)
		if room := plainBuffer - len(first); k > room {
			k = room / maxPlain * maxPlain
		}
		if err := c.sealBatch(first, p[:k]); err != nil {
			return done, err
		}
		if b := &l.batch; b.stuck {
			c.out = append(l.get(len(b.waits)), b.waits...)
			c.chunks = append(c.chunks, b.chunks...)
			return done + c.taken(b.taken), b.err
		}
		done += len(first) + k
		first, p = nil, p[k:]
	}
	return done, nil
}

// sealBatch makes a record of first, if that is not empty, and others of p, and writes them.
func (c *Conn) sealBatch(first, p []byte) (err error) {
	c.sealing = true
	defer func() { c.sealing = false }()
	defer c.rescue(&err)
	b := &c.loop.batch
	b.begin()
	b.left = len(first) + len(p)
	if len(first) > 0 {
		if err := c.sealRecord(first); err != nil {
			return err
		}
	}
	for n := 0; len(p) > 0; p = p[n:] {
		n = min(len(p), maxPlain)
		if err := c.sealRecord(p[:n]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) sealRecord(p []byte) error {
	b := &c.loop.batch
	rest := b.left - len(p)
	if _, err := c.tls.Write(p); err != nil {
		return err
	}
	b.left = rest
	b.chunks = append(b.chunks, chunk{end: len(b.waits), plain: len(p)})
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
