package loop

import (
	"time"
	"unsafe"

	"github.com/loopwheel/loopwheel/codec"
)

const (
	// outBuffer is the size of a connection's first output buffer. Like all of them it is the loop's again once written.
	outBuffer = 4 << 10

	// frameSlack is what a codec may add to a message without a need for a larger buffer.
	frameSlack = 64

	// maxTail is the size from which on a further frame gets a buffer of its own.
	maxTail = 64 << 10

	// A socket that is full is tried again by the wheel, if its engine cannot tell when it is writable.
	minRetry, maxRetry = time.Millisecond, 64 * time.Millisecond
)

// outbox is what waits to be written: filled buffers, the first of which may be written in part, and one that is being
// filled. Without pending output it holds no memory.
type outbox struct {
	filled [][]byte
	tail   []byte
	off    int // bytes of the first buffer that are written already
	size   int // bytes that wait
}

// Send appends one message, in the form that the codec gives it, to the output. What is sent within one callback
// leaves in one write when that returns. msg is copied.
//
// It is taken whole if less than Server.MaxOutbound bytes were pending before it, after trying the socket; if
// not, the connection closes at once, with ErrSlowConsumer, which Send returns, too. After Close it returns
// ErrClosed. An error of the codec means that nothing was sent, and closes nothing.
func (c *Conn) Send(msg []byte) error {
	c.loop.owner.Check("Conn.Send")
	if !c.hasRoom() {
		if err := c.room(); err != nil {
			return err
		}
	}
	tail, err := c.input.Codec().AppendFrame(c.space(len(msg)), msg)
	if err != nil {
		tail = nil // nothing, whatever the codec has made of it
	}
	c.appended(tail)
	return err
}

// Write appends bytes to the output as they are, by the rules of Send. It returns len(p), or 0 and an error.
func (c *Conn) Write(p []byte) (int, error) {
	c.loop.owner.Check("Conn.Write")
	if err := c.room(); err != nil {
		return 0, err
	}
	c.appended(append(c.space(len(p)), p...))
	return len(p), nil
}

// Pending returns the number of bytes that were sent but are not yet with the system.
func (c *Conn) Pending() int {
	c.loop.owner.Check("Conn.Pending")
	return c.out.size
}

// sendReply sends what the codec has to say by itself. It is output like any other: who asks and never reads the answers
// is a slow consumer. After CloseWrite nobody hears it.
func (c *Conn) sendReply() {
	before := c.out.size
	tail := c.reply.AppendReply(c.space(0))
	if c.mute {
		tail = nil
	}
	c.appended(tail)
	if c.out.size > before && before >= c.loop.maxOutbound {
		_ = c.room()
	}
}

// hasRoom is the short answer of room, for nearly all cases.
func (c *Conn) hasRoom() bool {
	return c.state < stateClosing && c.out.size < c.loop.maxOutbound && !c.mute
}

// room returns why no more output is taken, if so.
func (c *Conn) room() error {
	if c.state >= stateClosing && !c.speaking || c.mute {
		return ErrClosed
	}
	if limit := c.loop.maxOutbound; c.out.size >= limit {
		c.writeOut()
		switch {
		case c.state >= stateClosing && (!c.speaking || c.drop):
			return ErrClosed
		case c.out.size < limit:
		case c.speaking: // the last words must not cost what was sent before
			return ErrSlowConsumer
		default:
			c.drop = true
			c.shut(ErrSlowConsumer)
			return ErrSlowConsumer
		}
	}
	return nil
}

// space returns the slice to append a frame of about n bytes to: the rest of the tail, or a new one. Most turns fill one
// small buffer and write it, so the loop keeps one at hand. The others are no larger than they must be: a broadcast
// takes very many at once.
func (c *Conn) space(n int) []byte {
	o := &c.out
	if l := c.loop; o.tail == nil {
		if b := l.scratch; b != nil && n <= outBuffer {
			o.tail, l.scratch = b, nil
		} else {
			o.tail = l.pool.Get(min(n+frameSlack, maxTail))
		}
	} else if cap(o.tail) < outBuffer && len(o.tail)+n+frameSlack > cap(o.tail) {
		small := o.tail
		o.tail = append(l.pool.Get(max(outBuffer, min(len(small)+n, maxTail))), small...)
		l.pool.Put(small)
	} else if len(o.tail) > 0 && len(o.tail)+n > maxTail {
		o.filled = append(o.filled, o.tail)
		o.tail = l.pool.Get(min(n+frameSlack, maxTail))
	}
	return o.tail
}

// appended takes back what space returned, with more in it, or not.
func (c *Conn) appended(tail []byte) {
	o := &c.out
	n := len(tail) - len(o.tail)
	if n <= 0 {
		c.nothingAppended()
		return
	}
	if unsafe.SliceData(tail) != unsafe.SliceData(o.tail) {
		c.loop.recycle(o.tail) // it was too small
	}
	o.size += n
	o.tail = tail
	if !c.isDirty {
		c.isDirty = true
		c.loop.dirty.push(c, flushLink)
	}
}

func (c *Conn) nothingAppended() {
	if c.out.size == 0 {
		c.out.release(c.loop)
	}
}

// writeOut writes as much as the socket takes, and asks to be told when it takes more.
func (c *Conn) writeOut() {
	o := &c.out
	if c.lost || o.size == 0 {
		return
	}
	var n int
	var err error
	if len(o.filled) == 0 {
		n, err = c.sock.Write(o.tail[o.off:])
	} else {
		n, err = c.writeMany()
	}
	if err != nil {
		c.broken(err)
		return
	}
	c.loop.count.bytesOut += uint64(n)
	if n > 0 {
		c.lastWrite, c.wrote = c.loop.now, true
		if c.exact { // a callback may have taken long
			c.lastWrite = c.loop.clock()
		}
	}
	if o.size == n {
		o.release(c.loop)
		c.full, c.idle.waiting = false, false
		if c.mute {
			c.sock.CloseWrite()
		}
		return
	}
	o.consume(n, &c.loop.pool)
	c.waitWritable(n > 0)
}

func (c *Conn) writeMany() (int, error) {
	o := &c.out
	bufs := append(o.filled[:len(o.filled):len(o.filled)], o.tail)
	bufs[0] = bufs[0][o.off:]
	return c.sock.Writev(bufs)
}

// waitWritable arranges for writable to be called.
func (c *Conn) waitWritable(progress bool) {
	if !c.full {
		c.full = true
		c.outputWaits(progress)
	}
	if c.sock.NotifyWritable() {
		return
	}
	c.retryIn = min(max(minRetry, 2*c.retryIn), maxRetry)
	if progress {
		c.retryIn = minRetry
	}
	l := c.loop
	if !l.wheel.Pending(c.retry) {
		c.retry = l.wheel.At(l.after(c.retryIn), func() {
			l.current = nil
			c.writable()
		})
	}
}

// writable goes on with the output.
func (c *Conn) writable() {
	if c.state == stateClosed {
		return
	}
	c.full = false
	c.writeOut()
	if c.water != nil {
		c.checkWater()
	}
	if c.state == stateClosing {
		c.endSoon()
	}
}

// broken closes c because its socket failed.
func (c *Conn) broken(err error) {
	c.drop = true
	c.shut(err)
}

// consume drops n bytes, which are fewer than there are.
func (o *outbox) consume(n int, pool *codec.Pool) {
	o.size -= n
	n += o.off
	done := 0
	for done < len(o.filled) && n >= len(o.filled[done]) {
		n -= len(o.filled[done])
		pool.Put(o.filled[done])
		done++
	}
	o.off = n
	if done > 0 {
		rest := copy(o.filled, o.filled[done:])
		clear(o.filled[rest:])
		o.filled = o.filled[:rest]
	}
	if len(o.filled) == 0 && o.off > 0 && len(o.tail)-o.off <= o.off {
		// The tail may be filled further: what was written pays for moving the rest.
		o.tail = append(o.tail[:0], o.tail[o.off:]...)
		o.off = 0
	}
}

// release gives back all memory.
func (o *outbox) release(l *Loop) {
	if l.scratch == nil && cap(o.tail) == outBuffer && o.filled == nil { // most are like that
		l.scratch = o.tail[:0]
		o.tail, o.off, o.size = nil, 0, 0
		return
	}
	for _, b := range o.filled {
		l.recycle(b)
	}
	if o.tail != nil {
		l.recycle(o.tail)
	}
	*o = outbox{}
}

// recycle takes back a buffer.
func (l *Loop) recycle(b []byte) {
	if l.scratch == nil && cap(b) == outBuffer {
		l.scratch = b[:0]
		return
	}
	l.pool.Put(b)
}
