package loop

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/loopwheel/loopwheel/loop/internal/jobs"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/internal/outbox"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// This file is output that is not copied on its way to the socket: Writev and SendFile.

// minWritev is what Writev copies at most: a system call costs more.
const minWritev = 16 << 10

// Writev writes all buffers of bufs in order, by the rules of Write: all of them or none. From 16
// KiB on, and without TLS, what the socket takes at once is not copied. Writev changes neither bufs
// nor its buffers, and the caller may reuse them when it returns. On a UDP session all buffers
// together are one datagram.
func (c *Conn) Writev(bufs net.Buffers) (int, error) {
	c.loop.owner.Check("Conn.Writev")
	total := 0
	for _, b := range bufs {
		total += len(b)
	}
	if c.isUDP() {
		return c.Write(slices.Concat(bufs...))
	}
	if err := c.admitOutput(); err != nil {
		return 0, err
	}
	written := 0
	if total >= minWritev && !c.isTLS() && !c.sendsFile() {
		if c.out.box != nil {
			c.writeOut()
		}
		if c.out.box == nil && c.sock != nil {
			var err error
			if written, err = c.gather(bufs); err != nil {
				c.abort(err)
				return 0, ErrClosed
			}
		}
	}
	if c.isClosing() && c.at() != stateSpeaking {
		return 0, ErrClosed
	}
	if written < total {
		tail := c.beginAppend(total - written)
		for skip := written; len(bufs) > 0; bufs = bufs[1:] {
			tail = append(tail, bufs[0][min(skip, len(bufs[0])):]...)
			skip = max(0, skip-len(bufs[0]))
		}
		c.endAppend(tail)
	}
	return total, nil
}

// gather writes what the socket takes of bufs.
func (c *Conn) gather(bufs net.Buffers) (written int, err error) {
	if s, ok := c.sock.(interface{ FD() int }); ok && sockets.HasWritev {
		written, err = sockets.Writev(s.FD(), bufs)
	} else {
		for _, b := range bufs {
			var n int
			n, err = c.sock.Write(b)
			if written += n; err != nil || n < len(b) {
				break
			}
		}
	}
	if written > 0 {
		c.wrote(written)
	}
	return written, err
}

const (
	// filePart is how much of a file is made ready at a time for the system to send, and copyPart
	// how much is read for a socket that it cannot send files to.
	filePart, copyPart = 256 << 10, 64 << 10
)

// SendFile sends n bytes of a file, starting at offset, after earlier output. Later output waits
// for it. The loop never waits for the disk: a goroutine of Offload reads the file. On Linux, for
// plain sockets, the system sends the bytes from its cache; elsewhere, and with TLS, they are read
// in pieces of 64 KiB. They, and output that waits before them, count neither for Pending nor
// against MaxOutbound; output that is sent after them does.
//
// If done is not nil, it is called once on the loop: with nil when the system has accepted all
// bytes, with io.ErrUnexpectedEOF if the file has fewer than n bytes, or with the read error. Bytes
// that were read before the error are sent, and c continues. done gets ErrClosed, before OnClose,
// if c closes meanwhile. The peer then reads a reset, because a normal end could look like the end
// of the file. The drain, and the end of a peer's output, wait for done. f must stay open until
// then; with a nil done, until OnClose. SendFile does not change its offset. A panic in done closes
// c.
//
// If SendFile returns an error, nothing is sent and done is not called. The error is ErrClosed,
// ErrSlowConsumer, which closes c as in Send, ErrOffloadFull, or ErrServerClosed, or says that
// another file is being sent, that c is a UDP session, or that offset or n is negative.
func (c *Conn) SendFile(f *os.File, offset, n int64, done func(err error)) error {
	c.loop.owner.Check("Conn.SendFile")
	switch {
	case offset < 0 || n < 0:
		return errors.New("loop: Conn.SendFile with a negative offset or size")
	case c.isUDP():
		return errors.New("loop: Conn.SendFile with a UDP session: send datagrams")
	case c.isClosing():
		return ErrClosed
	case c.sendsFile():
		return errors.New("loop: Conn.SendFile: another file is being sent: send this one when done is called")
	}
	if err := c.admitOutput(); err != nil {
		return err
	}
	s := &fileOutput{c: c, f: f, at: offset, left: n, done: done, before: c.out.box}
	s.queue = c.loop.server.jobs.NewQueue(c.jobPanicked)
	if _, ok := c.sock.(interface{ FD() int }); ok && sockets.HasSendFile {
		s.raw, _ = f.SyscallConn()
	}
	if err := s.read(); err != nil {
		return err
	}
	c.out.box = nil
	c.more().file = s
	c.touch()
	return nil
}

// sendsFile reports whether SendFile's done has not been called.
func (c *Conn) sendsFile() bool { return c.extras != nil && c.extras.file != nil }

// A fileOutput is what SendFile sends. While a connection has one it is written before the outbox,
// which counts as blocked.
type fileOutput struct {
	c        *Conn
	f        *os.File
	raw      syscall.RawConn // of f, if the system sends it; nil: its bytes are read
	at, left int64
	done     func(err error)
	queue    *jobs.Queue
	before   *outbox.Box // what was sent before it; nil: the socket has that
	buf      []byte      // of the loop's pool, that part is in
	part     []byte      // bytes that were read and not written
	cached   int         // or how many the system can send without the disk
	err      error       // what done gets after that
	reading  bool        // a job reads
	blocked  bool        // the socket is full
	over     bool        // done is called soon
}

// read starts a job that reads the next part.
func (s *fileOutput) read() error {
	l, at, raw := s.c.loop, s.at, s.raw
	size := int(min(s.left, copyPart))
	if raw != nil {
		size = int(min(s.left, filePart))
	} else {
		s.buf = l.store.Pool.Get(size)[:size]
	}
	buf := s.buf
	err := s.queue.Put(func(ctx context.Context) {
		var n int
		var err error
		if raw != nil {
			n, err = readThrough(ctx, s.f, at, size)
		} else {
			n, err = s.f.ReadAt(buf, at)
		}
		_ = l.Post(func() { s.loaded(buf, size, n, err) }) // an error: l has ended, and s with it
	})
	if err != nil {
		s.drop()
		if errors.Is(err, jobs.ErrClosed) {
			return ErrServerClosed
		}
		return err
	}
	s.reading = true
	return nil
}

// scratch has what bytes are read into that only the system's cache is to have.
var scratch = sync.Pool{New: func() any { return new([copyPart]byte) }}

// readThrough reads a part of a file into the system's cache, and returns how much of it there is.
func readThrough(ctx context.Context, f *os.File, at int64, size int) (n int, err error) {
	b := scratch.Get().(*[copyPart]byte)
	defer scratch.Put(b)
	for n < size && err == nil && ctx.Err() == nil {
		var m int
		m, err = f.ReadAt(b[:min(len(b), size-n)], at+int64(n))
		n += m
	}
	return n, err
}

// loaded runs on the loop after a job.
func (s *fileOutput) loaded(buf []byte, size, n int, err error) {
	c := s.c
	if !c.sendsFile() || c.extras.file != s { // c has closed
		return
	}
	s.reading = false
	if n == size {
		err = nil // which may be io.EOF
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if s.err = err; s.raw != nil {
		s.cached = n
	} else {
		s.part = buf[:n]
	}
	c.writeOut()
	c.touch()
}

// writeOut writes what the socket takes, of what was sent before the file first.
func (s *fileOutput) writeOut() {
	c, moved := s.c, false
	if b := c.out.box; b != nil {
		b.Blocked = true
	}
	s.blocked = false
	if c.sock == nil { // it has gone
		c.releaseOutput()
	}
	for c.sock != nil && !s.over {
		var n, want int
		var err error
		switch {
		case s.before != nil:
			want = s.before.Len()
			n, err = c.sock.Write(s.before.Bytes())
		case len(s.part) > 0:
			want = len(s.part)
			n, err = c.sock.Write(s.part)
		case s.cached > 0:
			want = s.cached
			n, err = sockets.SendFile(c.sock.(interface{ FD() int }).FD(), s.raw, s.at, s.cached)
			if errors.Is(err, errors.ErrUnsupported) { // it cannot send this one
				s.raw, s.cached, s.err = nil, 0, nil
				continue
			}
		case s.reading:
			return
		case s.err != nil || s.left == 0:
			s.over = true
			c.loop.runSoon(s)
			return
		default:
			s.drop()
			if s.err = s.read(); s.err == nil {
				return
			}
			continue
		}
		if err != nil {
			c.abort(err)
			return
		}
		if n > 0 {
			moved = true
			c.wrote(n)
			s.wrote(n)
		}
		if n < want {
			s.blocked = true
			c.outputWaits(moved)
			if !c.sock.NotifyWritable() {
				c.tryAgain(moved)
			}
			return
		}
	}
}

// wrote takes n bytes off what is written first.
func (s *fileOutput) wrote(n int) {
	store := &s.c.loop.store
	switch b := s.before; {
	case b == nil:
		s.at, s.left = s.at+int64(n), s.left-int64(n)
		s.part, s.cached = s.part[min(n, len(s.part)):], max(0, s.cached-n)
	case n < b.Len():
		b.Consume(n, store)
	default:
		s.before = nil
		store.Put(b)
	}
}

// Run calls done, from the run queue.
func (s *fileOutput) Run() {
	c := s.c
	if !c.isOpen() || c.extras.file != s {
		return // finish calls it, or has
	}
	c.endFile()
	if c.out.box == nil && c.out.finRequested && c.isOpen() && !c.sendsFile() {
		c.sock.CloseWrite()
	}
	c.out.todo |= afterWriteDue
	c.touch()
	c.deliverEnd()
}

// endFile calls done, if a file is being sent.
func (c *Conn) endFile() {
	if !c.sendsFile() {
		return
	}
	s := c.extras.file
	c.extras.file = nil
	c.unblock() // the file had blocked it
	s.queue.End()
	if s.reading { // the job may still have the buffer, or may never run
		c.loop.store.Pool.Grew(s.buf, nil)
	} else {
		s.drop()
	}
	if s.before != nil {
		c.loop.store.Put(s.before)
	}
	err := s.err
	if err == nil && s.left > 0 {
		err = ErrClosed
	}
	if s.done != nil {
		c.callHookAs(meter.Result, func() { s.done(err) })
	}
}

// drop gives back the buffer.
func (s *fileOutput) drop() {
	if s.buf != nil {
		s.c.loop.store.Pool.Put(s.buf)
		s.buf, s.part = nil, nil
	}
}
