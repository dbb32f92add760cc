//go:build unix

package gnetengine

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// An anchor is one end of a socket pair, which each loop has enrolled in gnet before anything else:
// gnet shows its loops to connections only. It stays silent but for Again.

var pull = []byte{0}

// mostTurns is how many turns there are, at most, behind looks of our own at the sockets, before
// gnet polls again. To write into the anchor, to poll and to read costs five times as much as such
// a look.
const mostTurns = 8

// Again implements engine.Engine. What Execute is given while the loop runs what it was given
// before, or handles a socket, is run before it polls again; so the anchor becomes readable in
// place of it.
func (e *Engine) Again(loop int) {
	l := e.loops[loop]
	if l.turning {
		l.asked = true
		return
	}
	l.pull()
}

// pull makes the anchor readable.
func (l *eventLoop) pull() {
	if _, err := unix.Write(l.peer, pull); err != nil { // as good as never: nobody else writes
		_ = l.engine.Wake(l.index)
	}
}

// turns is called when the anchor is readable. It has the host do what it was asked for, behind a
// look at the sockets; and again, if the host asks for that meanwhile.
func (l *eventLoop) turns() {
	host := l.engine.host
	if l.poll == nil { // gnet has the sockets
		host.Turn(l.index)
		return
	}
	l.turning = true
	for range mostTurns {
		l.look()
		l.asked = false // what sockets asked for comes now
		host.Turn(l.index)
		if !l.asked {
			break
		}
	}
	l.turning = false
	if l.asked {
		l.asked = false
		l.pull()
	}
}

// socketPair returns a connection, and the descriptor of its other end, which does not block.
func socketPair() (nc net.Conn, peer int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, -1, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	if nc, err = fileConn(fds[0]); err == nil {
		err = unix.SetNonblock(fds[1], true)
	}
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, -1, err
	}
	return nc, fds[1], nil
}

func fileConn(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "socketpair")
	defer f.Close()
	return net.FileConn(f)
}
