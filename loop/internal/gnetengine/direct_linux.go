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

// maxRaw is how much is read or written without telling Go's scheduler. That saves a tenth of what
// a small echo costs, and a quarter of a large one: Go's monitor takes the P of a system call that is
// longer than 20 µs, and starts a thread for it, which finds nothing. To copy so much takes a tenth
// of a millisecond, in which the P serves nobody else: less than a handler may take.
const maxRaw = readBuffer

// maxRawPieces is how many pieces are written so.
const maxRawPieces = 8

// justReading is what a socket is watched for that only reads: see direct.wanted.
const justReading = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET

// direct implements engine.Socket: a socket in the loop's own epoll instance, which gnet's loop looks
// into. What gnet would keep of it are 290 bytes, and a third of the instructions of an echo.
type direct struct {
	loop    *eventLoop
	sink    engine.Sink
	fd      int
	place   int32
	polling uint32 // what epoll watches for
	ended   bool   // the end has been read
	paused  bool
	waiting bool // for a call of Sink.Writable
	level   bool // reported for as long as there is something to read, not once
	lingers bool
	closed  bool
	unix    bool

	flow engine.Flow // nil, or what input goes to without a copy
}

// wanted returns what d must be watched for. Without any of it epoll still reports a reset.
//
// What comes to a socket that is only read is reported once (EPOLLET), as one read takes all of it,
// most often. Then a loop need not look once more before it waits, and epoll need not ask each
// socket again whether it is empty by now.
func (d *direct) wanted() (events uint32) {
	if !d.paused && !d.ended {
		events |= unix.EPOLLIN | unix.EPOLLRDHUP
	}
	if d.waiting {
		events |= unix.EPOLLOUT
	}
	if !d.level && events == unix.EPOLLIN|unix.EPOLLRDHUP {
		return justReading
	}
	if events == 0 && d.ended {
		events = unix.EPOLLONESHOT // a socket that has ended both ways is reported for ever
	}
	return events
}

// watch brings epoll up to date.
func (d *direct) watch() bool {
	events := d.wanted()
	if events == d.polling {
		return true
	}
	if d.loop.poll.modify(d.place, d.fd, events) != nil {
		return false
	}
	d.polling = events
	return true
}

// polled implements pollee.
//
// A read that does not fill the buffer has taken all, unless the stream ends or there is a mark of
// urgent data in it, which reading stops at: epoll tells of both. What has not been taken has d
// watched in the other way from then on.
func (d *direct) polled(events uint32) (look bool) {
	once := d.polling == justReading
	switch {
	case !once || events != unix.EPOLLIN || d.flow != nil:
		d.sort(events)
	case d.read():
		return false
	}
	if once && !d.closed {
		d.level = true
		d.watch()
	}
	return true
}

// sort deals with events of all kinds.
func (d *direct) sort(events uint32) {
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

// read takes what a buffer holds, and reports whether it was not full. It reads by recv(2), for the
// same reasons as Write.
func (d *direct) read() (short bool) {
	buf := d.loop.buffer()
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(d.fd), uintptr(unsafe.Pointer(&buf[0])), maxRaw, 0, 0, 0)
	switch {
	case errno == unix.EAGAIN:
		return true
	case errno == unix.EINTR:
	case errno != 0:
		d.over(os.NewSyscallError("read", errno))
	case n == 0:
		d.over(io.EOF)
	default:
		d.sink.Readable(buf[:n])
		return n < maxRaw
	}
	return false
}

// checkPaused ends a paused socket that was reset. If the peer had ended its output before that, the
// system's error is another one, and what came is all there is: it must not be lost. Nor must what
// is in a unix socket, where a reset only means that the peer has not read everything.
func (d *direct) checkPaused() {
	if !d.unix {
		n, err := unix.GetsockoptInt(d.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if errno := syscall.Errno(n); err == nil && errno != 0 && errno != unix.EPIPE {
			d.over(os.NewSyscallError("read", errno))
			return
		}
	}
	// Ended both ways, and reported for ever: it must not be, until it is read again. To ask for the
	// last report a second time would bring a second one.
	if d.polling != unix.EPOLLONESHOT {
		d.polling = unix.EPOLLONESHOT
		_ = d.loop.poll.modify(d.place, d.fd, d.polling)
	}
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

// Write implements engine.Socket, by send(2). write(2) goes through the kernel's layer for files
// first, which is a hundredth of what an echo costs. There is no function between Write and the
// call: a processor remembers a few dozen callers to predict where returns go to, and the kernel's
// own have replaced ours by then, so each return costs about 25 cycles.
func (d *direct) Write(p []byte) (int, error) {
	if len(p) > maxRaw {
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

// WriteAside implements engine.Aside: the system sorts out who reads, or polls, meanwhile.
func (d *direct) WriteAside(p []byte) (int, error) { return d.Write(p) }

// Writev implements engine.Socket: a few pieces as Write does it, by sendmsg(2). writev(2) would go
// through the layer for files, too, and take 0.5 to 1 µs more for the two records of 16 KiB over TLS.
func (d *direct) Writev(bufs [][]byte) (int, error) {
	var pieces [maxRawPieces]unix.Iovec
	size := 0
	for i := range min(len(bufs), maxRawPieces) {
		pieces[i].Base = unsafe.SliceData(bufs[i])
		pieces[i].SetLen(len(bufs[i]))
		size += len(bufs[i])
	}
	if len(bufs) > maxRawPieces || size > maxRaw {
		return d.slowWritev(bufs)
	}
	msg := unix.Msghdr{Iov: &pieces[0]}
	msg.SetIovlen(len(bufs))
	n, _, errno := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(d.fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL)
	switch errno {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return d.slowWritev(bufs)
	}
	return 0, failed("writev", errno)
}

// slowWritev is writev(2), which Go's scheduler is told of.
func (d *direct) slowWritev(bufs [][]byte) (int, error) {
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

// Divert implements engine.Divertible.
func (d *direct) Divert(to engine.Sink) { d.sink = to }

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
	d.loop.poll.remove(d.place, d.fd)
	rawClose(d.fd)
}

// FD returns the descriptor; tests look at its options by it.
func (d *direct) FD() int { return d.fd }

// buffer is what all direct sockets of a loop read into.
func (l *eventLoop) buffer() []byte {
	if l.input == nil {
		l.input = make([]byte, readBuffer)
	}
	return l.input
}
