//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
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

// checkPaused ends a paused socket that was reset, as gnet does not look. If the peer had ended its
// output before that, the system's error is another one, and what came is all there is: it must not
// be lost. Nor must what is in a unix socket, where a reset only means that the peer has not read
// everything.
func (s *socket) checkPaused() {
	if !s.is(markTCP) {
		return
	}
	events := poll(s.FD())
	if events&(unix.POLLERR|unix.POLLHUP) == 0 {
		s.watch(0)
		return
	}
	n, err := unix.GetsockoptInt(s.FD(), unix.SOL_SOCKET, unix.SO_ERROR)
	if errno := syscall.Errno(n); err == nil && errno != 0 && errno != unix.EPIPE {
		s.over(os.NewSyscallError("read", errno))
	}
}

// Resume gives the socket back to gnet. Enrolling waits for the loop, so it cannot be done on it.
func (s *socket) Resume() {
	s.unset(markPaused)
	if s.conn != nil || s.is(markResuming) {
		return
	}
	s.set(markResuming)
	nc, err := s.netConn()
	if err != nil {
		s.resumeLater()
		return
	}
	if nc.RemoteAddr() == nil { // it has ended in both directions meanwhile; gnet does not expect that
		_ = nc.Close()
		s.loop.execute(s.readRest)
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
		s.loop.execute(func() {
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

// netConn returns a copy of the socket as gnet wants it. It runs on the loop, because File.Fd,
// which package net uses, makes the descriptor blocking for a moment.
func (s *socket) netConn() (net.Conn, error) {
	f, err := s.file()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return net.FileConn(f)
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
