//go:build unix

package gnetengine

import (
	"os"

	"github.com/panjf2000/gnet/v2"
	gio "github.com/panjf2000/gnet/v2/pkg/io"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// maxIovecs is what one writev takes; gnet and the system refuse more.
const maxIovecs = 1024

// socket implements engine.Socket. The descriptor is gnet's until Linger or Pause makes one of our
// own. Once closed, the number belongs to somebody else: nothing here may use it then.
type socket struct {
	loop     *eventLoop
	conn     gnet.Conn // nil while detached from gnet: lingering, or paused
	sink     engine.Sink
	fd       int
	closed   bool
	watched  bool  // known to the watcher, or the poller
	waiting  bool  // for a call of Sink.Writable
	lingers  bool  // the Conn wants to go on writing after the end
	paused   bool  // as the Conn wants it
	tcp      bool  // known once paused
	place    int32 // in the poller
	resuming bool  // on its way back to gnet
}

// slowWrite is write(2), which Go's scheduler is told of.
func slowWrite(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Write(fd, p)
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
		default:
			return 0, failed("write", err)
		}
	}
}

func (s *socket) Writev(bufs [][]byte) (int, error) {
	if len(bufs) > maxIovecs {
		bufs = bufs[:maxIovecs]
	}
	for {
		n, err := gio.Writev(s.fd, bufs)
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
		default:
			return 0, failed("writev", err)
		}
	}
}

// failed returns what is wrong with a socket that took nothing: nothing, if it is full.
func failed(call string, err error) error {
	if err == unix.EAGAIN {
		return nil
	}
	return os.NewSyscallError(call, err)
}

func (s *socket) NotifyWritable() bool {
	if !s.watch(unix.POLLOUT) {
		return false
	}
	s.waiting = true
	return true
}

// watch asks the watcher for one look at what the loop makes of s: when it is writable, if that is
// in events; when it breaks, in any case.
func (s *socket) watch(events int16) bool {
	var err error
	if p := s.loop.poll; p != nil {
		err = p.watch(s, events)
	} else {
		err = s.loop.engine.watch.add(s, events)
	}
	if err == nil {
		s.watched = true
	}
	return err == nil
}

// ready is called on the loop when the watcher has seen something.
func (s *socket) ready() {
	if s.waiting && !s.closed {
		s.waiting = false
		s.sink.Writable()
	}
	if s.paused && s.conn == nil && !s.resuming && !s.waiting && !s.closed {
		s.checkPaused()
	}
}

func (s *socket) Pending() bool { return poll(s.fd)&unix.POLLIN != 0 }

// poll returns what poll(2) says of input, and of the end.
func poll(fd int) (events int16) {
	fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds[:], 0); err != nil || n <= 0 {
		return 0
	}
	return fds[0].Revents
}

func (s *socket) Unsent() int { return unsent(s.fd) }

func (s *socket) Linger() bool {
	s.lingers = s.conn == nil || s.detach() == nil
	return s.lingers
}

// detach gives s a descriptor of its own, so that it survives that gnet closes the other one.
func (s *socket) detach() error {
	fd, err := s.loop.reserve.dup(s.fd)
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	s.move(fd, nil)
	return nil
}

// move changes the descriptor, and takes along what the watcher knows.
func (s *socket) move(fd int, c gnet.Conn) {
	s.unwatch()
	s.fd, s.conn = fd, c
	if s.waiting && !s.NotifyWritable() {
		s.loop.notify(s) // too early, but then the sink tries, and asks again
	}
}

func (s *socket) CloseWrite() { _ = unix.Shutdown(s.fd, unix.SHUT_WR) }

func (s *socket) Close(hard bool) {
	if s.closed {
		return
	}
	s.closed = true
	s.unwatch()
	if hard {
		// Otherwise the kernel keeps what a peer with a closed window does not take, for many
		// minutes.
		_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	if s.conn == nil {
		_ = unix.Close(s.fd)
		s.loop.reserve.fill()
		return
	}
	_ = s.loop.gnet.Close(s.conn)
}

// broken is what gnet's OnClose means for the sink.
func (s *socket) broken(err error) {
	if s.closed {
		return
	}
	s.sink.Closed(cause(err))
	if s.conn != nil && !s.closed {
		s.unwatch()
		s.closed = true
	}
}

func (s *socket) unwatch() {
	if !s.watched {
		return
	}
	s.watched = false
	if p := s.loop.poll; p != nil {
		p.remove(s.place, s.fd)
	} else {
		s.loop.engine.watch.remove(s)
	}
}

// file returns a copy of the descriptor.
func (s *socket) file() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

func closeFD(fd int) { _ = unix.Close(fd) }

// FD returns the descriptor, for tests that look at its options.
func (s *socket) FD() int { return s.fd }
