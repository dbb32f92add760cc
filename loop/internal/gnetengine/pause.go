//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"io"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// resumeAgain is when a socket that could not be resumed, because descriptors had run out, is tried
// again.
const resumeAgain = 50 * time.Millisecond

// Pause takes the socket away from gnet, which cannot be told not to read.
func (s *socket) Pause() error {
	if c := s.conn; c != nil { // otherwise it is not yet back from the last pause
		if err := s.leaveGnet(); err != nil {
			return err
		}
		s.loop.drop(c)
	}
	s.paused = true
	if !s.waiting {
		_ = s.loop.watch(s, 0)
	}
	return nil
}

// checkPaused ends a paused socket that was reset, as gnet does not look.
func (s *socket) checkPaused() {
	if s.Poll()&(unix.POLLERR|unix.POLLHUP) == 0 {
		_ = s.loop.watch(s, 0)
	} else if err := s.WasReset(); err != nil {
		s.over(err)
	}
}

// Resume implements engine.Socket: a copy is enrolled as a new connection is, and becomes s.
func (s *socket) Resume() {
	s.paused = false
	if s.conn != nil || s.resuming {
		return
	}
	s.resuming = true
	nc, err := s.CopyAsIs()
	switch {
	case err != nil:
		s.resumeLater(err)
	case nc.RemoteAddr() == nil: // it has ended in both directions meanwhile, which gnet cannot handle
		_ = nc.Close()
		s.loop.Execute(s.readRest)
	default:
		s.loop.enroll(&ticket{conn: nc, open: s.attach, lost: s.resumeLater})
	}
}

// resumeLater may be called on any goroutine.
func (s *socket) resumeLater(error) {
	time.AfterFunc(resumeAgain, func() {
		s.loop.Execute(func() {
			s.resuming = false
			if !s.isClosed() && !s.paused {
				s.Resume()
			}
		})
	})
}

// attach makes c, which gnet has opened for the same connection, the socket's own.
func (s *socket) attach(c gnet.Conn) {
	s.resuming = false
	if s.isClosed() {
		s.loop.drop(c)
		return
	}
	old := s.FD()
	c.SetContext(s)
	s.become(c.Fd(), c)
	_ = unix.Close(old)
	s.loop.keepReserve()
	if s.paused {
		_ = s.Pause() // if it fails, Readable will be called, and the sink asks again
	}
}

// readRest reads, in gnet's place, the input that the kernel still has of a connection that has
// ended, and then the end.
func (s *socket) readRest() {
	s.resuming = false
	buf := make([]byte, sockets.ReadBuffer)
	for !s.isClosed() && !s.paused && !s.resuming { // Readable may pause it, and resume it
		switch n, err := unix.Read(s.FD(), buf); {
		case n > 0:
			s.sink.Readable(buf[:n])
		case err == nil:
			s.over(io.EOF)
			return
		case err != unix.EINTR:
			s.over(os.NewSyscallError("read", err))
			return
		}
	}
}

// over does what gnet's OnClose does, for a socket that is not gnet's.
func (s *socket) over(err error) {
	if s.sink.Ended(err); !s.lingers {
		s.Reset()
	}
}
