//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"io"
	"net"
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
	s.set(markPaused)
	if s.conn == nil {
		return nil // not yet back from the last pause
	}
	c := s.conn
	if _, tcp := c.RemoteAddr().(*net.TCPAddr); tcp {
		s.set(markTCP)
	}
	if err := s.detach(); err != nil {
		s.unset(markPaused)
		return err
	}
	c.SetContext(nil) // its OnClose is nobody's business
	_ = s.loop.gnet.Close(c)
	s.loop.reserve.fill()
	if s.is(markTCP) && !s.is(markWaiting) {
		s.watch(0)
	}
	return nil
}

// checkPaused ends a paused socket that was reset, as gnet does not look. Not a unix socket, where
// a reset only means that the peer has not read everything: what is in it must not be lost.
func (s *socket) checkPaused() {
	if !s.is(markTCP) {
		return
	}
	events := sockets.Poll(s.FD())
	if events&(unix.POLLERR|unix.POLLHUP) == 0 {
		s.watch(0)
		return
	}
	if err := sockets.WasReset(s.FD()); err != nil {
		s.over(err)
	}
}

// Resume gives the socket back to gnet. Enrolling waits for the loop, so it cannot be done on it.
func (s *socket) Resume() {
	s.unset(markPaused)
	if s.conn != nil || s.is(markResuming) {
		return
	}
	s.set(markResuming)
	nc, err := sockets.Conn(s.FD())
	if err != nil {
		s.resumeLater()
		return
	}
	if nc.RemoteAddr() == nil { // it has ended in both directions meanwhile; gnet does not expect that
		_ = nc.Close()
		s.loop.Execute(s.readRest)
		return
	}
	t := &ticket{loop: s.loop, resume: s}
	if !s.loop.beside(func() {
		if _, err := s.loop.client.EnrollContext(nc, t); err != nil || !t.opened {
			s.resumeLater()
		}
	}) {
		_ = nc.Close() // the loop is about to end
	}
}

func (s *socket) resumeLater() {
	time.AfterFunc(resumeAgain, func() {
		s.loop.Execute(func() {
			s.unset(markResuming)
			if !s.is(markClosed) && !s.is(markPaused) {
				s.Resume()
			}
		})
	})
}

// readRest reads what the kernel still has of a connection that has ended, and then the end, in
// gnet's place.
func (s *socket) readRest() {
	s.unset(markResuming)
	var buf []byte
	for !s.is(markClosed) && !s.is(markPaused) {
		if buf == nil {
			buf = make([]byte, readBuffer)
		}
		n, err := unix.Read(s.FD(), buf)
		switch {
		case n > 0:
			s.sink.Readable(buf[:n])
		case err == unix.EINTR:
		case err != nil:
			s.over(os.NewSyscallError("read", err))
			return
		default:
			s.over(io.EOF)
			return
		}
	}
}

// over is for a socket that is not gnet's what gnet's OnClose is for others.
func (s *socket) over(err error) {
	s.sink.Closed(err)
	if !s.is(markLingers) {
		s.Close(true)
	}
}

// attach makes c, which gnet has opened for the same connection, the socket's own.
func (s *socket) attach(c gnet.Conn) {
	s.unset(markResuming)
	if s.is(markClosed) {
		c.SetContext(nil)
		_ = s.loop.gnet.Close(c)
		return
	}
	old := s.FD()
	c.SetContext(s)
	s.become(c.Fd(), c)
	closeFD(old)
	s.loop.reserve.fill()
	if s.is(markPaused) {
		_ = s.Pause() // if it fails, Readable will be called, and the sink asks again
	}
}
