//go:build unix

package gnetengine

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// A ticket is the gnet context of a connection until it is open.
type ticket struct {
	loop   *eventLoop
	open   func(engine.Socket) engine.Sink // nil: the loop's anchor, or
	resume *socket                         // a paused socket that reads again, or
	opened bool                            // OnOpen was called
	served bool                            // and has returned

	conn   net.Conn // which enroll hands over
	result chan error
}

// Enroll implements engine.Engine.
func (e *Engine) Enroll(loop int, nc net.Conn, open func(engine.Socket) engine.Sink) error {
	l := e.loops[loop]
	if err := unblock(nc); err != nil {
		return errors.Join(err, nc.Close())
	}
	if l.poll != nil {
		return l.adopt(nc, open)
	}
	return l.enroll(nc, &ticket{loop: l, open: open})
}

// unblock sees to it that nc does not hold up a loop: whoever had it may have made it block, as
// os.File.Fd does, or linger.
func unblock(nc net.Conn) error {
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetNonblock(int(fd), true)
		neverLinger(int(fd))
	})
	return errors.Join(err, os.NewSyscallError("fcntl", failed))
}

// neverLinger has no close wait for the peer, as SO_LINGER with a time does, though the socket does
// not block. Without a time it resets, and does not wait.
func neverLinger(fd int) {
	if l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER); err == nil && l.Onoff != 0 && l.Linger > 0 {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{})
	}
}

// enroll hands nc to gnet, and waits until t is open. What it needs for that is in t, which is of
// another size than what lives as long as a connection: garbage of the same size would leave holes
// between those.
func (l *eventLoop) enroll(nc net.Conn, t *ticket) error {
	t.conn, t.result = nc, make(chan error, 1)
	go t.handOver()
	return l.await(t)
}

func (l *eventLoop) await(t *ticket) error {
	select {
	case err := <-t.result:
		if err == nil && !t.opened { // gnet reports a failed registration as a dead connection and no error
			err = errUnregistered
		}
		return err
	case <-l.ended: // then gnet never answers, or its answer is not here yet: the connection was the loop's
		if t.served {
			return nil
		}
		return errEnded
	}
}

func (t *ticket) handOver() {
	_, err := t.loop.client.EnrollContext(t.conn, t)
	t.result <- err
}
