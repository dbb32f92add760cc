//go:build linux && !386 && !s390x

package epoll

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// maxRaw is how much is read or written without telling Go's scheduler. That saves a tenth of what
// a small echo costs, and a quarter of a large one: Go's monitor takes the P of a system call that
// is longer than 20 µs, and starts a thread for it, which finds nothing. To copy so much takes a
// tenth of a millisecond, in which the P serves nobody else: less than a handler may take.
const maxRaw = readBuffer

// maxRawPieces is how many pieces are written so.
const maxRawPieces = 8

// socket implements engine.Socket: a socket in the loop's own epoll instance.
type socket struct {
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
	unix    bool
}

// wanted returns what s must be watched for. Without any of it epoll still reports a reset.
func (s *socket) wanted() (events uint32) {
	if !s.paused && !s.ended {
		events |= unix.EPOLLIN
	}
	if s.waiting {
		events |= unix.EPOLLOUT
	}
	if events == 0 && s.ended {
		events = unix.EPOLLONESHOT // a socket that has ended both ways is reported for ever
	}
	return events
}

// watch brings epoll up to date.
func (s *socket) watch() bool {
	events := s.wanted()
	if events == s.polling {
		return true
	}
	if s.loop.poll.control(unix.EPOLL_CTL_MOD, s.fd, s.place, events) != nil {
		return false
	}
	s.polling = events
	return true
}

// polled implements pollee.
func (s *socket) polled(events uint32) {
	const broken = unix.EPOLLERR | unix.EPOLLHUP
	if events&(unix.EPOLLOUT|broken) != 0 && s.waiting {
		s.waiting = false
		s.sink.Writable()
		if s.closed {
			return
		}
		s.watch()
	}
	switch {
	case s.ended:
	case s.paused:
		if events&broken != 0 {
			s.checkPaused()
		}
	case events&(unix.EPOLLIN|broken) != 0:
		s.read()
	}
}

// read takes what a buffer holds. It reads by recv(2), for the same reasons as Write.
func (s *socket) read() {
	buf := s.loop.buffer()
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&buf[0])), maxRaw, 0, 0, 0)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR: // it is reported again
	case errno != 0:
		s.over(os.NewSyscallError("read", errno))
	case n == 0:
		s.over(io.EOF)
	default:
		s.sink.Readable(buf[:n])
	}
}

// checkPaused ends a paused socket that was reset. Of a unix socket a reset only means that the
// peer has not read everything: the input that is in it must not be lost.
func (s *socket) checkPaused() {
	if !s.unix {
		if err := sockets.WasReset(s.fd); err != nil {
			s.over(err)
			return
		}
	}
	// Ended both ways, and reported for ever: it must not be, until it is read again. To ask for
	// the last report a second time would bring a second one.
	if s.polling != unix.EPOLLONESHOT {
		s.polling = unix.EPOLLONESHOT
		_ = s.loop.poll.control(unix.EPOLL_CTL_MOD, s.fd, s.place, s.polling)
	}
}

// over tells the sink of the end.
func (s *socket) over(err error) {
	s.ended = true
	s.sink.Closed(err)
	switch {
	case s.closed:
	case s.lingers:
		s.watch()
	default:
		s.Close(false)
	}
}

// Write implements engine.Socket, by send(2). write(2) goes through the kernel's layer for files
// first, which is a hundredth of what an echo costs. There is no function between Write and the
// call: a processor remembers a few dozen callers to predict where returns go to, and the kernel's
// own have replaced ours by then, so each return costs about 25 cycles.
func (s *socket) Write(p []byte) (int, error) {
	if len(p) > maxRaw {
		n, err := unix.Write(s.fd, p) // which Go's scheduler is told of
		return max(n, 0), sockets.Failed("write", err)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
	if errno == 0 {
		return int(n), nil
	}
	return 0, sockets.Failed("write", errno)
}

// Writev implements engine.Socket: a few pieces as Write does it, by sendmsg(2). writev(2) would go
// through the layer for files, too, and take 0.5 to 1 µs more for the two records of 16 KiB over
// TLS.
func (s *socket) Writev(bufs [][]byte) (int, error) {
	var pieces [maxRawPieces]unix.Iovec
	size := 0
	for i := range min(len(bufs), maxRawPieces) {
		pieces[i].Base = unsafe.SliceData(bufs[i])
		pieces[i].SetLen(len(bufs[i]))
		size += len(bufs[i])
	}
	if len(bufs) > maxRawPieces || size > maxRaw {
		n, err := unix.Writev(s.fd, bufs[:min(len(bufs), sockets.MaxIovecs)])
		return max(n, 0), sockets.Failed("writev", err)
	}
	msg := unix.Msghdr{Iov: &pieces[0]}
	msg.SetIovlen(len(bufs))
	n, _, errno := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&msg)), unix.MSG_NOSIGNAL)
	if errno == 0 {
		return int(n), nil
	}
	return 0, sockets.Failed("writev", errno)
}

func (s *socket) NotifyWritable() bool {
	s.waiting = true
	if !s.watch() {
		s.waiting = false
	}
	return s.waiting
}

func (s *socket) Pending() bool { return sockets.Poll(s.fd)&unix.POLLIN != 0 }

func (s *socket) Unsent() int { return sockets.Unsent(s.fd) }

func (s *socket) Pause() error {
	s.paused = true
	if !s.watch() {
		s.paused = false
		return os.NewSyscallError("epoll_ctl", unix.ENOMEM)
	}
	return nil
}

func (s *socket) Resume() {
	s.paused = false
	s.watch()
}

func (s *socket) CloseWrite() { _ = unix.Shutdown(s.fd, unix.SHUT_WR) }

// Divert implements engine.Socket.
func (s *socket) Divert(to engine.Sink) { s.sink = to }

func (s *socket) Linger() bool {
	s.lingers = true
	return true
}

func (s *socket) Close(hard bool) {
	if s.closed {
		return
	}
	s.closed = true
	if hard {
		sockets.Harden(s.fd)
	}
	s.loop.poll.remove(s.place, s.fd)
	rawClose(s.fd)
}

// Detach implements engine.Detachable.
func (s *socket) Detach() (net.Conn, []byte, error) {
	nc, err := sockets.Conn(s.fd)
	if err == nil {
		s.Close(false) // the copy goes on
	}
	return nc, nil, err
}

// FD returns the descriptor; tests look at its options by it.
func (s *socket) FD() int { return s.fd }

// begin opens s on its loop.
func (s *socket) begin(open func(engine.Socket) engine.Sink) (err error) {
	s.polling = s.wanted()
	if s.place, err = s.loop.poll.add(s.fd, s.polling, s); err != nil {
		_ = unix.Close(s.fd)
		return err
	}
	s.opened(open(s))
	return nil
}

// opened is told who takes what comes.
func (s *socket) opened(sink engine.Sink) {
	if s.sink == nil { // otherwise Divert was called
		s.sink = sink
	}
	if s.sink == nil {
		s.Close(false)
	} else if !s.closed && !s.watch() {
		s.over(os.NewSyscallError("epoll_ctl", unix.ENOMEM))
	}
}

// buffer is what all sockets of a loop read into.
func (l *eventLoop) buffer() []byte {
	if l.input == nil {
		l.input = make([]byte, readBuffer)
	}
	return l.input
}
