//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// A carrier brings sockets to gnet, which enrolls connections of package net, and nothing else. A
// connection that package net makes of a socket has its options reset, and costs 40 system calls. So
// the carrier lets package net copy an empty socket, and puts ours under the copy's descriptor.
// That is ours until gnet has copied it, and the empty one again when gnet closes it, as Go's poller
// knows that one.
type carrier struct {
	mu    sync.Mutex
	empty *os.File // one end of a pair of sockets; nil: not yet open
	peer  int      // the other end
	ended bool     // with the loop
}

// wrap returns a connection whose descriptor is a copy of fd. Any goroutine may call it.
func (k *carrier) wrap(fd int) (nc net.Conn, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return nil, engine.ErrEnded
	}
	for range 2 { // a connection that gnet did not enroll may stand in the way of its successor
		if k.empty == nil {
			if err = k.open(); err != nil {
				return nil, err
			}
		}
		if nc, err = net.FileConn(k.empty); err == nil {
			break
		}
		k.close()
	}
	if err != nil {
		return nil, err
	}
	if err = sockets.With(nc, func(to int) error { return sockets.CopyTo(fd, to) }); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return nc, nil
}

// unwrap is called when gnet has its copy, before it closes nc.
func (k *carrier) unwrap(nc net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.empty != nil {
		_ = sockets.With(nc, func(to int) error { return sockets.CopyTo(int(k.empty.Fd()), to) })
	}
}

// lacks returns how many descriptors open will take.
func (k *carrier) lacks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.empty == nil {
		return 2
	}
	return 0
}

// open makes the empty socket, and fills its buffer: what is neither readable nor writable does not
// wake Go's poller.
func (k *carrier) open() error {
	fds, err := sockets.Pair()
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	k.empty, k.peer = os.NewFile(uintptr(fds[0]), "socket"), fds[1]
	_ = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 1)
	for err = unix.SetNonblock(fds[0], true); err == nil; {
		_, err = unix.Write(fds[0], make([]byte, 1024))
	}
	return nil
}

// end is for the end of the loop.
func (k *carrier) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	k.close()
}

func (k *carrier) close() {
	if k.empty != nil {
		_, _ = k.empty.Close(), unix.Close(k.peer)
		k.empty = nil
	}
}
