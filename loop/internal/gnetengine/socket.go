//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"os"

	"github.com/panjf2000/gnet/v2"
	gio "github.com/panjf2000/gnet/v2/pkg/io"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// maxIovecs is what one writev takes; gnet and the system refuse more.
const maxIovecs = 1024

// socket implements engine.Socket by a connection of gnet's. The descriptor is gnet's until Linger
// or Pause makes one of our own. Once closed, the number belongs to somebody else: nothing here may
// use it then.
type socket struct {
	loop *eventLoop
	conn gnet.Conn // nil while detached from gnet: lingering, or paused
	sink engine.Sink
	fd   int32
	marks
}

// marks are what else there is to know of a socket, in a byte: it is in memory for as long as its
// connection, and so takes 48 bytes and not 64.
type marks uint8

const (
	markClosed   marks = 1 << iota
	markWatched        // known to the watcher
	markWaiting        // for a call of Sink.Writable
	markLingers        // the Conn wants to go on writing after the end
	markPaused         // as the Conn wants it
	markTCP            // known once paused
	markResuming       // on its way back to gnet
)

func (m marks) is(what marks) bool { return m&what != 0 }
func (m *marks) set(what marks)    { *m |= what }
func (m *marks) unset(what marks)  { *m &^= what }

// maxRaw is how much is written without telling Go's scheduler. That saves a tenth of what a small
// echo costs. A call that lasts keeps the garbage collector from stopping the world: to copy so
// much takes 10 to 20 µs.
const maxRaw = 64 << 10

// Write implements engine.Socket.
func (s *socket) Write(p []byte) (int, error) {
	send := unix.Write
	if len(p) <= maxRaw {
		send = rawSend
	}
	n, err := send(int(s.fd), p)
	return max(n, 0), failed("write", err)
}

// Writev implements engine.Socket.
func (s *socket) Writev(bufs [][]byte) (int, error) {
	n, err := gio.Writev(s.FD(), bufs[:min(len(bufs), maxIovecs)])
	return max(n, 0), failed("writev", err)
}

// failed returns what is wrong with a socket that took nothing: nothing, if it is full, or a signal
// came first.
func failed(call string, err error) error {
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	return os.NewSyscallError(call, err)
}

func (s *socket) NotifyWritable() bool {
	if !s.watch(unix.POLLOUT) {
		return false
	}
	s.set(markWaiting)
	return true
}

// watch asks the watcher for one look at what the loop makes of s: when it is writable, if that is
// in events; when it breaks, in any case.
func (s *socket) watch(events int16) bool {
	if s.loop.engine.watch.add(s, events) != nil {
		return false
	}
	s.set(markWatched)
	return true
}

// ready is called on the loop when the watcher has seen something.
func (s *socket) ready() {
	if s.is(markWaiting) && !s.is(markClosed) {
		s.unset(markWaiting)
		s.sink.Writable()
	}
	if s.is(markPaused) && s.conn == nil && !s.is(markResuming) && !s.is(markWaiting) && !s.is(markClosed) {
		s.checkPaused()
	}
}

func (s *socket) Pending() bool { return sockets.Poll(s.FD())&unix.POLLIN != 0 }

func (s *socket) Unsent() int { return sockets.Unsent(s.FD()) }

func (s *socket) Linger() bool {
	if s.conn == nil || s.detach() == nil {
		s.set(markLingers)
	}
	return s.is(markLingers)
}

// detach gives s a descriptor of its own, so that it survives that gnet closes the other one.
func (s *socket) detach() error {
	fd, err := s.loop.reserve.dup(s.FD())
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	s.become(fd, nil)
	return nil
}

// Divert implements engine.Socket.
func (s *socket) Divert(to engine.Sink) { s.sink = to }

// become changes the descriptor, and takes along what the watcher knows.
func (s *socket) become(fd int, c gnet.Conn) {
	s.unwatch()
	s.fd, s.conn = int32(fd), c
	if s.is(markWaiting) && !s.NotifyWritable() {
		s.loop.notify(s) // too early, but then the sink tries, and asks again
	}
}

func (s *socket) CloseWrite() { _ = unix.Shutdown(s.FD(), unix.SHUT_WR) }

func (s *socket) Close(hard bool) {
	if s.is(markClosed) {
		return
	}
	s.set(markClosed)
	s.unwatch()
	if hard {
		sockets.Harden(s.FD())
	}
	if s.conn == nil {
		_ = unix.Close(s.FD())
		s.loop.reserve.fill()
		return
	}
	_ = s.loop.gnet.Close(s.conn)
}

// broken is what gnet's OnClose means for the sink.
func (s *socket) broken(err error) {
	if s.is(markClosed) {
		return
	}
	s.sink.Closed(cause(err))
	if s.conn != nil && !s.is(markClosed) {
		s.unwatch()
		s.set(markClosed)
	}
}

func (s *socket) unwatch() {
	if !s.is(markWatched) {
		return
	}
	s.unset(markWatched)
	s.loop.engine.watch.remove(s)
}

func closeFD(fd int) { _ = unix.Close(fd) }

// FD returns the descriptor; tests look at its options by it.
func (s *socket) FD() int { return int(s.fd) }
