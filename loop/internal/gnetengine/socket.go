//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// socket implements engine.Socket by a connection of gnet's. The descriptor is gnet's until
// KeepWriting or Pause makes a copy. It is -1 once it is closed, as the system gives the number to
// other files then. Write, HasInput, Unacked and CloseWrite are those of sockets.Descriptor.
//
// A socket takes 48 bytes, for as long as its connection; with a word more it would be 64.
type socket struct {
	sockets.Descriptor
	waiting      bool // for a call of Sink.Writable
	paused       bool // as the Conn wants it
	keepsWriting bool // the Conn wants to go on writing after the end
	loop         *gnetLoop
	conn         gnet.Conn // nil: the descriptor is our own, as it writes on after the end, is paused, or resumes
	sink         engine.Sink
}

func (s *socket) isClosed() bool { return s.Descriptor < 0 }

// NotifyWritable implements engine.Socket.
func (s *socket) NotifyWritable() bool {
	s.waiting = s.loop.watch(s, unix.POLLOUT) == nil
	return s.waiting
}

// ready is called on the loop when the watcher has seen something.
func (s *socket) ready() {
	if s.waiting && !s.isClosed() {
		s.waiting = false
		s.sink.Writable()
	}
	if s.paused && s.conn == nil && !s.isResuming() && !s.waiting && !s.isClosed() {
		s.checkPaused()
	}
}

// KeepWriting implements engine.Socket.
func (s *socket) KeepWriting() bool {
	s.keepsWriting = s.conn == nil || s.leaveGnet() == nil
	return s.keepsWriting
}

// leaveGnet gives s a descriptor of its own, so that it survives that gnet closes the other one.
func (s *socket) leaveGnet() error {
	fd, err := s.loop.dup(s.FD())
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	s.become(fd, nil)
	return nil
}

// become changes the descriptor, and takes along what the watcher knows.
func (s *socket) become(fd int, c gnet.Conn) {
	s.loop.unwatch(s)
	s.Descriptor, s.conn = sockets.Descriptor(fd), c
	s.watchAgain()
}

// watchAgain goes on waiting, with another descriptor or on another loop.
func (s *socket) watchAgain() {
	if !s.waiting || s.NotifyWritable() {
		return
	}
	s.waiting = true
	l := s.loop
	l.early[s] = struct{}{}
	l.Execute(func() { // too early, but then the sink tries, and asks again
		if _, ok := l.early[s]; ok {
			delete(l.early, s)
			s.ready()
		}
	})
}

// Close implements engine.Socket.
func (s *socket) Close() {
	if s.isClosed() {
		return
	}
	s.loop.unwatch(s)
	delete(s.loop.resuming, s)
	if s.conn != nil {
		s.loop.drop(s.conn)
	} else {
		_ = unix.Close(s.FD())
		s.loop.keepReserve()
	}
	s.Descriptor = -1
}

// Reset implements engine.Socket.
func (s *socket) Reset() {
	if !s.isClosed() {
		s.ResetOnClose()
		s.Close()
	}
}

// drop makes gnet close a connection that has no socket any more.
func (l *gnetLoop) drop(c gnet.Conn) {
	c.SetContext(nil)
	_ = l.gnet.Close(c)
	l.keepReserve()
}

// broken reports to the sink that gnet has closed the connection.
func (s *socket) broken(err error) {
	s.sink.Ended(err)
	if s.conn != nil && !s.isClosed() {
		s.loop.unwatch(s)
		s.Descriptor = -1
	}
}

// Detach implements engine.Detachable. The socket has no input left: gnet hands over what it reads
// at once.
func (s *socket) Detach() (net.Conn, []byte, error) {
	nc, err := s.Copy()
	if err == nil {
		s.Close() // the copy goes on
	}
	return nc, nil, err
}

// keepReserve makes sure that the loop has spare descriptors, copies of that of its anchor's other
// end: two to bring a socket back to gnet, and those of its carrier and its watcher until they are
// open. To pause, to resume or to write on after the peer's end, a socket needs more descriptors
// until gnet has closed the first; where the process has none left, input or output would be lost.
func (l *gnetLoop) keepReserve() {
	n := 2 + l.carrier.lacks() + l.watcher.lacks()
	for len(l.reserve) < n {
		fd, err := unix.FcntlInt(uintptr(l.peer), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return
		}
		l.reserve = append(l.reserve, fd)
	}
	for len(l.reserve) > n {
		l.takeReserve()
	}
}

// takeReserve frees one descriptor, if there is one.
func (l *gnetLoop) takeReserve() {
	if last := len(l.reserve) - 1; last >= 0 {
		_ = unix.Close(l.reserve[last])
		l.reserve = l.reserve[:last]
	}
}

// freeReserve makes room for a socket that is to come back. The rest of the process may be faster:
// then it is tried again.
func (l *gnetLoop) freeReserve() {
	for len(l.reserve) > 0 {
		l.takeReserve()
	}
}

// dup returns a copy of fd, which is of the reserve if no other descriptor is free. Once gnet has
// closed the original, its number is free for the next reserve: a loop that pauses sockets needs no
// more descriptors than it has, and loops do not take the last one from each other.
func (l *gnetLoop) dup(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	last := len(l.reserve) - 1
	if err == nil || last < 0 {
		return n, err
	}
	n, l.reserve = l.reserve[last], l.reserve[:last]
	if err = sockets.CopyTo(fd, n); err != nil {
		_ = unix.Close(n)
		return -1, err
	}
	return n, nil
}
