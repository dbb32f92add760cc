//go:build linux && !386 && !s390x

// Package epoll runs package loop on Linux' own epoll, without gnet. Each loop is a goroutine with
// an epoll instance of its own, in which its sockets and its timer are. It waits in Go's poller: a
// loop that waits holds no P.
package epoll

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
	"github.com/loopwheel/loopwheel/loop/internal/taskloop"
)

// readBuffer is how much one read takes, and each loop has one buffer of this size, of which only
// the pages are resident that reads have filled. With 64 KiB large frames cost 2.6 times as much
// CPU; with 256 KiB a frame of that size, whose header makes it longer, is never whole in it and is
// copied, which is a third of what it costs.
const readBuffer = 512 << 10

// Engine implements engine.Engine.
type Engine struct {
	sockets.Network
	host  engine.Host
	loops []*eventLoop
}

// New returns an engine.
func New() *Engine { return &Engine{} }

// eventLoop is one loop. A field is the loop's own unless its comment says otherwise.
type eventLoop struct {
	*taskloop.Queue // of what other goroutines want; any may use it

	engine  *Engine
	index   int
	poll    *poller
	input   []byte            // what sockets read into
	packets *netpackets.Batch // what UDP sockets read into

	running sync.WaitGroup // the goroutine; any may wait for it
}

// Start implements engine.Engine. Each loop has to show that its timer and other goroutines wake
// it.
func (e *Engine) Start(n int, base time.Time, h engine.Host) error {
	e.host = h
	for i := range n {
		l := &eventLoop{engine: e, index: i}
		p, err := newPoller(l, base)
		if err != nil {
			p.close()
			return fmt.Errorf("loop: cannot start event loop %d: %w", i, err)
		}
		l.poll = p
		e.loops = append(e.loops, l) // from here on Stop stops it
		l.running.Go(l.run)
		if err := p.prove(proofTimeout); err != nil {
			p.leaving.Store(true)
			_ = p.file.Close() // which ends a loop that hears nothing else
			return fmt.Errorf("loop: cannot start event loop %d: %w", i, err)
		}
	}
	return nil
}

// run is the loop's goroutine.
func (l *eventLoop) run() {
	defer l.End() // also if a callback has ended the goroutine
	if err := l.poll.run(); err != nil {
		l.End()
		l.poll.tellEnd(engine.ErrEnded)
		l.engine.host.Ended(l.index, fmt.Errorf("loop: event loop %d ended: %w", l.index, err))
	}
}

// TickAt implements engine.Engine.
func (e *Engine) TickAt(loop int, when time.Duration) { e.loops[loop].poll.timer.setAt(when) }

// Wake implements engine.Engine.
func (e *Engine) Wake(loop int) error {
	e.loops[loop].poll.wake()
	return nil
}

// Again implements engine.Engine.
func (e *Engine) Again(loop int) { e.loops[loop].poll.again = true }

// Lost implements engine.Engine.
func (e *Engine) Lost(loop int) { e.loops[loop].End() }

// Stop implements engine.Engine.
func (e *Engine) Stop() error {
	for _, l := range e.loops {
		l.poll.leave()
	}
	for _, l := range e.loops {
		l.running.Wait()
		l.poll.closeAll()
	}
	return nil
}

// Enroll implements engine.Engine.
func (e *Engine) Enroll(loop int, nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	l := e.loops[loop]
	s, err := l.take(nc)
	if err != nil {
		go lost(err)
		return
	}
	l.Put(func() {
		if err := s.begin(open); err != nil {
			lost(err)
		}
	}, func() { lost(errors.Join(engine.ErrEnded, unix.Close(s.fd))) })
}

// take makes a socket of a connection.
func (l *eventLoop) take(nc net.Conn) (*socket, error) {
	if n, ok := nc.(*newcomer); ok {
		return &socket{loop: l, fd: n.fd}, nil
	}
	fd, err := takeOver(nc)
	_, tcp := nc.(*net.TCPConn)
	return &socket{loop: l, fd: fd, unix: !tcp}, err
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
