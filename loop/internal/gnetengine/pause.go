//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
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
	if s.conn != nil || s.isResuming() {
		return
	}
	l, t := s.loop, new(ticket)
	goOn := func(f func()) { // on the loop, unless the socket was closed, or has left
		if l.resuming[s] == t {
			delete(l.resuming, s)
			f()
		}
	}
	t.open = func(c gnet.Conn) {
		if l.resuming[s] != t {
			l.drop(c)
		}
		goOn(func() { s.attach(c) })
	}
	t.lost = func(error) {
		time.AfterFunc(resumeAgain, func() { l.Execute(func() { goOn(s.resumeAgain) }) })
	}
	l.resuming[s] = t
	nc, err := l.carrier.wrap(s.FD())
	if err != nil { // it may be the first one that needs what is in reserve
		l.freeReserve()
		nc, err = l.carrier.wrap(s.FD())
	}
	if err != nil {
		t.lost(err)
		return
	}
	t.conn, t.wrapped = nc, true
	l.enroll(t)
}

func (s *socket) resumeAgain() {
	if !s.paused {
		s.loop.freeReserve()
		s.Resume()
	}
}

// isResuming reports whether the socket is on its way back to gnet.
func (s *socket) isResuming() bool { return s.loop.resuming[s] != nil }

// Leave implements engine.Movable.
func (s *socket) Leave() error {
	l := s.loop
	delete(l.resuming, s)
	if c := s.conn; c != nil {
		fd, err := l.dup(s.FD())
		if err != nil {
			return os.NewSyscallError("dup", err)
		}
		l.unwatch(s)
		s.Descriptor, s.conn = sockets.Descriptor(fd), nil
		l.drop(c)
		return nil
	}
	l.unwatch(s)
	return nil
}

// Join implements engine.Movable: gnet enrolls the socket as after a pause.
func (s *socket) Join(l engine.Loop) error {
	s.loop = l.(*gnetLoop)
	s.watchAgain()
	switch {
	case s.keepsWriting:
	case !s.paused:
		s.Resume()
	case !s.waiting:
		_ = s.loop.watch(s, 0)
	}
	return nil
}

// Abandon implements engine.Movable.
func (s *socket) Abandon() {
	_ = unix.Close(s.FD())
	s.Descriptor = -1
}

// attach makes c, which gnet has opened for the same connection, the socket's own.
func (s *socket) attach(c gnet.Conn) {
	old := s.FD()
	c.SetContext(s)
	s.become(c.Fd(), c)
	_ = unix.Close(old)
	s.loop.keepReserve()
	if s.paused {
		_ = s.Pause() // if it fails, Readable will be called, and the sink asks again
	}
}

// over does what gnet's OnClose does, for a socket that is not gnet's.
func (s *socket) over(err error) {
	if s.sink.Ended(err); !s.keepsWriting {
		s.Reset()
	}
}
