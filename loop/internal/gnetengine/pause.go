package gnetengine

import (
	"net"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// resumeAgain is when a socket that could not be resumed, because descriptors had run out, is tried again.
const resumeAgain = 50 * time.Millisecond

// Pause takes the socket away from gnet, which cannot be told not to read.
func (s *socket) Pause() error {
	s.paused = true
	if s.conn == nil {
		return nil // not yet back from the last pause
	}
	c := s.conn
	if err := s.detach(); err != nil {
		s.paused = false
		return err
	}
	c.SetContext(nil) // its OnClose is nobody's business
	_ = s.loop.gnet.Close(c)
	s.loop.reserve.fill()
	return nil
}

// Resume gives the socket back to gnet. Enrolling waits for the loop, so it cannot be done on it.
func (s *socket) Resume() {
	s.paused = false
	if s.conn != nil || s.resuming {
		return
	}
	s.resuming = true
	nc, err := s.netConn()
	if err != nil {
		s.resumeLater()
		return
	}
	if nc.RemoteAddr() == nil { // reset meanwhile; gnet does not expect that
		_ = nc.Close()
		s.loop.execute(s.reset)
		return
	}
	t := &ticket{loop: s.loop, resume: s}
	go func() {
		if _, err := s.loop.client.EnrollContext(nc, t); err != nil || !t.opened {
			s.resumeLater()
		}
	}()
}

func (s *socket) resumeLater() {
	time.AfterFunc(resumeAgain, func() {
		s.loop.execute(func() {
			s.resuming = false
			if !s.closed && !s.paused {
				s.Resume()
			}
		})
	})
}

// reset is for a paused socket what gnet's OnClose is for others.
func (s *socket) reset() {
	if !s.closed {
		s.sink.Closed(syscall.ECONNRESET)
		s.Close(true)
	}
}

// netConn returns a copy of the socket as gnet wants it. It runs on the loop, because File.Fd, which package net uses,
// makes the descriptor blocking for a moment.
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
	s.resuming = false
	if s.closed {
		c.SetContext(nil)
		_ = s.loop.gnet.Close(c)
		return
	}
	old := s.fd
	c.SetContext(s)
	s.move(c.Fd(), c)
	closeFD(old)
	if s.paused {
		_ = s.Pause() // if it fails, Readable will be called, and the sink asks again
	}
}
