//go:build linux && !386 && !s390x

// Package epoll runs package loop on Linux' own epoll, without gnet. Each loop is a goroutine with
// an epoll instance of its own, in which its sockets are. It waits in Go's poller: a loop that
// waits holds no P.
package epoll

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// Engine implements engine.Engine.
type Engine struct {
	sockets.Network
	host  engine.Host
	loops []*eventLoop
}

// New returns an engine.
func New() *Engine { return &Engine{} }

// Start implements engine.Engine.
func (e *Engine) Start(n int, base time.Time, h engine.Host) error {
	e.host = h
	for i := range n {
		l, err := newLoop(e, i, base)
		if err != nil {
			l.close()
			return fmt.Errorf("loop: cannot start event loop %d: %w", i, err)
		}
		e.loops = append(e.loops, l) // from here on Stop stops it
		l.running.Go(l.run)
	}
	return nil
}

// TickAt implements engine.Engine.
func (e *Engine) TickAt(loop int, when time.Duration) { e.loops[loop].tick = when }

// Wake implements engine.Engine.
func (e *Engine) Wake(loop int) error {
	e.loops[loop].wake()
	return nil
}

// Again implements engine.Engine.
func (e *Engine) Again(loop int) { e.loops[loop].again = true }

// Probe implements engine.Engine. The loop looks once more before it waits.
func (e *Engine) Probe(loop int) {
	l := e.loops[loop]
	l.probed.Store(true)
	l.wake()
}

// Lost implements engine.Engine.
func (e *Engine) Lost(loop int) { e.loops[loop].End() }

// Stop implements engine.Engine.
func (e *Engine) Stop() error {
	for _, l := range e.loops {
		l.leaving.Store(true)
		l.wake()
	}
	for _, l := range e.loops {
		l.running.Wait()
		l.close()
	}
	return nil
}

// Enroll implements engine.Engine.
func (e *Engine) Enroll(loop int, nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	l := e.loops[loop]
	fd, err := takeOver(nc)
	if err != nil {
		go lost(err)
		return
	}
	l.Put(func() {
		if err := l.open(fd, open); err != nil {
			lost(err)
		}
	}, func() { lost(errors.Join(engine.ErrEnded, unix.Close(fd))) })
}

// takeOver returns a copy of nc's descriptor, and closes nc.
func takeOver(nc net.Conn) (fd int, err error) {
	defer nc.Close()
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	err = raw.Control(func(n uintptr) {
		fd, failed = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0)
	})
	if failed != nil {
		return -1, fmt.Errorf("fcntl: %w", failed)
	}
	return fd, err
}
