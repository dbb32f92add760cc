//go:build linux && !386 && !s390x

// Package epoll runs package loop on Linux' own epoll, without gnet. Each loop is a goroutine with
// an epoll instance of its own, in which its sockets are. It waits in Go's poller: a loop that
// waits holds no P.
package epoll

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// Engine implements engine.Engine.
type Engine struct {
	sockets.System
	loops []*epollLoop
}

// New returns an engine.
func New() *Engine { return &Engine{} }

// Start implements engine.Engine.
func (e *Engine) Start(base time.Time, hosts []engine.Host) ([]engine.Loop, error) {
	loops := make([]engine.Loop, len(hosts))
	for i, h := range hosts {
		l, err := newLoop(h, i, base)
		if err != nil {
			l.close()
			return nil, fmt.Errorf("loop: cannot start event loop %d: %w", i, err)
		}
		e.loops = append(e.loops, l) // from here on Stop stops it
		l.running.Go(l.run)
		loops[i] = l
	}
	return loops, nil
}

// Stop implements engine.Engine.
func (e *Engine) Stop() error {
	for _, l := range e.loops {
		l.leaving.Store(true)
		l.Wake()
	}
	for _, l := range e.loops {
		l.running.Wait()
		l.close()
	}
	return nil
}

// TickAt implements engine.Loop.
func (l *epollLoop) TickAt(when time.Duration) { l.tick = when }

// Wake implements engine.Loop. A loop that is awake looks at what is wanted before it waits. If
// something else wakes it at the same time, it looks once for nothing.
func (l *epollLoop) Wake() {
	l.wanted.Store(true)
	if l.resting.Load() && l.resting.Swap(false) {
		_ = l.file.SetReadDeadline(longAgo) // fails if the loop has ended
	}
}

// Again implements engine.Loop.
func (l *epollLoop) Again() { l.again = true }

// Probe implements engine.Loop. The loop looks once more before it waits.
func (l *epollLoop) Probe() {
	l.probed.Store(true)
	l.Wake()
}

// Lost implements engine.Loop.
func (l *epollLoop) Lost() { l.End() }

// Enroll implements engine.Loop.
func (l *epollLoop) Enroll(nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	fd, err := sockets.TakeOver(nc)
	if err != nil {
		go lost(err)
		return
	}
	l.enroll(fd, open, lost)
}

// enroll is Enroll for a descriptor, which is the loop's.
func (l *epollLoop) enroll(fd int, open func(engine.Socket) engine.Sink, lost func(error)) {
	l.Put(func() {
		if err := l.open(fd, open); err != nil {
			lost(err)
		}
	}, func() { lost(errors.Join(engine.ErrEnded, unix.Close(fd))) })
}
