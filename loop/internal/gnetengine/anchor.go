//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// An anchor is one end of a socket pair, which each loop enrolls in gnet before anything else: gnet
// shows its loops to connections only. To run something on the loop, any goroutine makes the anchor
// readable, so that the loop polls all its sockets in between. gnet's own Execute would not do:
// gnet empties its queue, with what is added meanwhile, before it polls again.

var pull = []byte{0}

// wants are the calls that the loop makes when it reads the anchor. Any goroutine may set one,
// before pull.
type wants struct {
	pulled atomic.Bool // the anchor is readable, or will be
	turn   atomic.Bool // Host.OnWake
	tick   atomic.Bool // Host.OnDeadline
	probe  atomic.Bool // Host.OnProbe
}

// pull makes the anchor readable, unless it is. Any goroutine may call it.
func (l *gnetLoop) pull() {
	if l.wants.pulled.Swap(true) {
		return
	}
	l.peerMu.Lock()
	defer l.peerMu.Unlock()
	if l.peer >= 0 { // otherwise the loop has stopped
		_, _ = unix.Write(l.peer, pull) // there is room for a byte: only one is ever on its way
	}
}

// polled is called when the anchor has been read, so gnet has polled since it was pulled.
func (l *gnetLoop) polled() {
	w := &l.wants
	w.pulled.Store(false)
	if w.probe.Load() && w.probe.Swap(false) {
		l.host.OnProbe()
	}
	for range l.Len() { // what is put meanwhile comes after the next poll
		if f := l.Next(); f != nil {
			f()
		}
	}
	l.look()
	if w.turn.Swap(false) {
		l.host.OnWake()
	}
	if w.tick.Load() && w.tick.Swap(false) {
		l.host.OnDeadline()
	}
}

// Wake implements engine.Loop.
func (l *gnetLoop) Wake() {
	l.wants.turn.Store(true)
	l.pull()
}

// Again implements engine.Loop.
func (l *gnetLoop) Again() { l.Wake() }

// Probe implements engine.Loop.
func (l *gnetLoop) Probe() {
	l.wants.probe.Store(true)
	l.pull()
}

// socketPair returns a connection, and the descriptor of its other end.
func socketPair() (nc net.Conn, peer int, err error) {
	fds, err := sockets.Pair()
	if err != nil {
		return nil, -1, os.NewSyscallError("socketpair", err)
	}
	f := os.NewFile(uintptr(fds[0]), "socket")
	defer f.Close()
	if nc, err = net.FileConn(f); err != nil {
		_ = unix.Close(fds[1])
		return nil, -1, err
	}
	return nc, fds[1], nil
}
