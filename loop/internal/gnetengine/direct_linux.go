//go:build !386 && !s390x

package gnetengine

import (
	"io"
	"os"
	"syscall"
	"unsafe"

	gio "github.com/panjf2000/gnet/v2/pkg/io"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// direct implements engine.Socket without gnet: a socket in the loop's own epoll instance. Dialled
// connections are that: to hand one to gnet takes a goroutine, a copy of the descriptor and a
// look at Go's own poller.
type direct struct {
	loop    *eventLoop
	sink    engine.Sink
	fd      int
	place   int32
	polling uint32 // what epoll watches for
	ended   bool   // the end has been read
	paused  bool
	waiting bool // for a call of Sink.Writable
	lingers bool
	closed  bool
	much    bool // came with the last read

	flow     engine.Flow // nil, or what input goes to without a copy
	unlisted bool        // epoll did not take it
}

// wanted returns what d must be watched for. Without any of it epoll still reports a reset.
func (d *direct) wanted() (events uint32) {
	if !d.paused && !d.ended {
		events |= unix.EPOLLIN | unix.EPOLLRDHUP
	}
	if d.waiting {
		events |= unix.EPOLLOUT
	}
	if events == 0 && d.ended {
		events = unix.EPOLLONESHOT // a socket that has ended both ways is reported for ever
	}
	return events
}

// watch brings epoll up to date.
func (d *direct) watch() bool {
	events := d.wanted()
	if events == d.polling || d.unlisted {
		return !d.unlisted
	}
	if d.loop.poll.modify(d.place, d.fd, events) != nil {
		return false
	}
	d.polling = events
	return true
}

// polled implements pollee.
func (d *direct) polled(events uint32) {
	const broken = unix.EPOLLERR | unix.EPOLLHUP
	if events&(unix.EPOLLOUT|broken) != 0 && d.waiting {
		d.waiting = false
		d.sink.Writable()
		if d.closed {
			return
		}
		d.watch()
	}
	switch {
	case d.ended:
	case d.paused:
		if events&broken != 0 {
			d.checkPaused()
		}
	case events&(unix.EPOLLIN|unix.EPOLLRDHUP|broken) != 0:
		d.receive()
	}
}

// read is one read, as gnet makes it.
func (d *direct) read() {
	buf := d.loop.buffer()
	n, err := d.readInto(buf)
	d.much = n >= maxRawWrite
	switch {
	case n > 0:
		d.sink.Readable(buf[:n])
	case err == unix.EAGAIN || err == unix.EINTR:
	case err != nil:
		d.over(os.NewSyscallError("read", err))
	default:
		d.over(io.EOF)
	}
}

// readInto reads by recv(2), and without telling Go's scheduler unless there is much, for the same
// reasons as Write.
func (d *direct) readInto(buf []byte) (int, error) {
	if d.much {
		return unix.Read(d.fd, buf)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(d.fd), uintptr(unsafe.Pointer(&buf[0])), maxRawWrite, 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// checkPaused is socket.checkPaused: a reset ends what is paused, an orderly end waits.
func (d *direct) checkPaused() {
	n, err := unix.GetsockoptInt(d.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if errno := syscall.Errno(n); err == nil && errno != 0 && errno != unix.EPIPE {
		d.over(os.NewSyscallError("read", errno))
		return
	}
	// Ended both ways, and reported for ever: it must not be, until it is read again.
	d.polling = unix.EPOLLONESHOT
	_ = d.loop.poll.modify(d.place, d.fd, d.polling)
}

// over tells the sink of the end.
func (d *direct) over(err error) {
	d.ended = true
	d.sink.Closed(err)
	switch {
	case d.closed:
	case d.lingers:
		d.watch()
	default:
		d.Close(false)
	}
}

// Write implements engine.Socket, as socket.Write does it.
func (d *direct) Write(p []byte) (int, error) {
	if len(p) > maxRawWrite {
		return slowWrite(d.fd, p)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(d.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return slowWrite(d.fd, p)
	}
	return 0, failed("write", errno)
}

func (d *direct) Writev(bufs [][]byte) (int, error) {
	for {
		n, err := gio.Writev(d.fd, bufs[:min(len(bufs), maxIovecs)])
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
		default:
			return 0, failed("writev", err)
		}
	}
}

func (d *direct) NotifyWritable() bool {
	d.waiting = true
	if !d.watch() {
		d.waiting = false
	}
	return d.waiting
}

func (d *direct) Pending() bool { return poll(d.fd)&unix.POLLIN != 0 }

func (d *direct) Unsent() int { return unsent(d.fd) }

func (d *direct) Pause() error {
	d.paused = true
	if !d.watch() {
		d.paused = false
		return os.NewSyscallError("epoll_ctl", unix.ENOMEM)
	}
	return nil
}

func (d *direct) Resume() {
	d.paused = false
	d.watch()
}

func (d *direct) CloseWrite() { _ = unix.Shutdown(d.fd, unix.SHUT_WR) }

func (d *direct) Linger() bool {
	d.lingers = true
	return true
}

func (d *direct) Close(hard bool) {
	if d.closed {
		return
	}
	d.closed = true
	if hard {
		_ = unix.SetsockoptLinger(d.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if !d.unlisted {
		d.loop.poll.remove(d.place, d.fd)
	}
	_ = unix.Close(d.fd)
}

// buffer is what all direct sockets of a loop read into.
func (l *eventLoop) buffer() []byte {
	if l.input == nil {
		l.input = make([]byte, readBuffer)
	}
	return l.input
}
