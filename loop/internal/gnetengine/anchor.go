//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// An anchor is one end of a socket pair, which each loop has enrolled in gnet before anything else:
// gnet shows its loops to connections only. It stays silent but for Again.

var pull = []byte{0}

// Again implements engine.Engine. What Execute is given while the loop runs what it was given
// before, or handles a socket, is run before it polls again; so the anchor becomes readable in
// place of it.
func (e *Engine) Again(loop int) {
	if _, err := unix.Write(e.loops[loop].peer, pull); err != nil { // as good as never: nobody else writes
		_ = e.Wake(loop)
	}
}

// socketPair returns a connection, and the descriptor of its other end, which does not block.
func socketPair() (nc net.Conn, peer int, err error) {
	syscall.ForkLock.RLock() // no child inherits what is not closed on exec yet
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, -1, os.NewSyscallError("socketpair", err)
	}
	end := sockets.Descriptor(fds[0])
	nc, err = end.Copy()
	_ = unix.Close(fds[0])
	if err == nil {
		err = unix.SetNonblock(fds[1], true)
	}
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, -1, err
	}
	return nc, fds[1], nil
}
