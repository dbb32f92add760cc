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

// socket implements engine.Socket: a socket in the loop's own epoll instance.
type socket struct {
	sockets.Descriptor
	place        int32 // in the poller
	loop         *epollLoop
	sink         engine.Sink
	polling      uint32 // what epoll watches for
	ended        bool   // the end has been read
	paused       bool
	waiting      bool // for a call of Sink.Writable
	keepsWriting bool
	closed       bool
}

// open makes a socket of fd, which is closed if there is an error.
func (l *epollLoop) open(fd int, open func(engine.Socket) engine.Sink) (err error) {
	s := &socket{loop: l, Descriptor: sockets.Descriptor(fd), polling: unix.EPOLLIN}
	if s.place, err = l.add(fd, s.polling, s); err != nil {
		_ = unix.Close(fd)
		return err
	}
	s.sink = open(s)
	return nil
}

// events returns what epoll is to watch for. Without any of it epoll still reports a reset.
func (s *socket) events() (events uint32) {
	if !s.paused && !s.ended {
		events |= unix.EPOLLIN
	}
	if s.waiting {
		events |= unix.EPOLLOUT
	}
	if events == 0 && s.ended {
		events = unix.EPOLLONESHOT // epoll reports a socket that has ended both ways without end
	}
	return events
}

// watch brings what epoll watches for up to date.
func (s *socket) watch() error {
	events := s.events()
	if events == s.polling {
		return nil
	}
	err := s.loop.control(unix.EPOLL_CTL_MOD, s.FD(), s.place, events)
	if err == nil {
		s.polling = events
	}
	return err
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
		_ = s.watch()
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
	if s.loop.input == nil {
		s.loop.input = make([]byte, sockets.MaxRead)
	}
	buf := s.loop.input
	n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.Descriptor), uintptr(unsafe.Pointer(&buf[0])), sockets.ReadBuffer, 0, 0, 0)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR: // it is reported again
	case errno != 0:
		s.over(os.NewSyscallError("read", errno))
	case n == 0:
		s.over(io.EOF)
	default:
		if n == sockets.ReadBuffer {
			n = uintptr(sockets.More(s.Descriptor, buf, s.sink))
		}
		s.sink.Readable(buf[:n])
	}
}

// checkPaused ends a paused socket that was reset.
func (s *socket) checkPaused() {
	if err := s.WasReset(); err != nil {
		s.over(err)
		return
	}
	// It has ended in both directions. epoll reports that without end, so one report is asked for,
	// once; the rest is read after Resume.
	if s.polling != unix.EPOLLONESHOT {
		s.polling = unix.EPOLLONESHOT
		_ = s.loop.control(unix.EPOLL_CTL_MOD, s.FD(), s.place, s.polling)
	}
}

// over tells the sink of the end.
func (s *socket) over(err error) {
	s.ended = true
	s.sink.Ended(err)
	switch {
	case s.closed:
	case s.keepsWriting:
		_ = s.watch()
	default:
		s.Close()
	}
}

// NotifyWritable implements engine.Socket.
func (s *socket) NotifyWritable() bool {
	s.waiting = true
	s.waiting = s.watch() == nil
	return s.waiting
}

// Pause implements engine.Socket.
func (s *socket) Pause() error {
	s.paused = true
	err := s.watch()
	s.paused = err == nil
	return err
}

// Resume implements engine.Socket.
func (s *socket) Resume() {
	s.paused = false
	_ = s.watch()
}

// KeepWriting implements engine.Socket.
func (s *socket) KeepWriting() bool {
	s.keepsWriting = true
	return true
}

// Close implements engine.Socket. It does not block, so it goes past Go's scheduler.
func (s *socket) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.loop.remove(s.place, s.FD())
	_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(s.Descriptor), 0, 0)
}

// Reset implements engine.Socket.
func (s *socket) Reset() {
	if !s.closed {
		s.ResetOnClose()
		s.Close()
	}
}

// Detach implements engine.Detachable.
func (s *socket) Detach() (net.Conn, []byte, error) {
	nc, err := s.Copy()
	if err == nil {
		s.Close() // the copy goes on
	}
	return nc, nil, err
}

// Leave implements engine.Movable.
func (s *socket) Leave() error {
	s.loop.remove(s.place, s.FD())
	return nil
}

// Join implements engine.Movable.
func (s *socket) Join(l engine.Loop) (err error) {
	s.loop, s.polling = l.(*epollLoop), s.events()
	if s.place, err = s.loop.add(s.FD(), s.polling, s); err != nil {
		s.Abandon()
	}
	return err
}

// Abandon implements engine.Movable.
func (s *socket) Abandon() {
	s.closed = true
	_ = unix.Close(s.FD())
	s.Descriptor = -1
}

// release implements pollee.
func (s *socket) release() { s.Close() }
