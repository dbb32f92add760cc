// Package netengine runs package loop on Go's own net: where gnet does not compile, as on Windows,
// and as what to compare gnet with. Everything above the seam is the same.
//
// Each loop is a goroutine with a queue of what happens. A socket has one goroutine that reads, and
// one that writes while there is something to write. Writing goes by way of a buffer, which stands
// for the kernel's, as package net has no write that does not wait. All of that costs some 10 KB
// for each connection and two changes of goroutine for each message: it is for development, not for
// speed.
package netengine

import (
	"net"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// stopTimeout is how long Stop waits for the output of closed sockets.
const stopTimeout = 3 * time.Second

// Engine implements engine.Engine.
type Engine struct {
	sockets.System
	Loops
	reading sync.WaitGroup
	writing sync.WaitGroup
	open    sync.Map // of *socket
}

// New returns an engine.
func New() *Engine { return new(Engine) }

// A netLoop implements engine.Loop.
type netLoop struct {
	*TaskLoop
	engine *Engine
}

// Start implements engine.Engine.
func (e *Engine) Start(base time.Time, hosts []engine.Host) ([]engine.Loop, error) {
	loops := make([]engine.Loop, len(hosts))
	for i, h := range hosts {
		loops[i] = &netLoop{e.Run(base, h), e}
	}
	return loops, nil
}

// Enroll implements engine.Loop.
func (l *netLoop) Enroll(nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	s := newSocket(l, nc)
	l.Put(func() { s.begin(open) }, func() {
		_ = nc.Close()
		lost(engine.ErrEnded)
	})
}

// Stop implements engine.Engine. A kernel delivers what was written when the process has ended
// already; here that has to be waited for, but not for ever.
func (e *Engine) Stop() error {
	e.End()
	e.open.Range(func(s, _ any) bool {
		s.(*socket).Close() // the loops have ended
		return true
	})
	e.reading.Wait()
	written := make(chan struct{})
	go func() {
		e.writing.Wait()
		close(written)
	}()
	t := time.NewTimer(stopTimeout)
	defer t.Stop()
	select {
	case <-written:
	case <-t.C:
	}
	return nil
}

// ServePacket implements engine.Loop.
func (l *netLoop) ServePacket(nc net.Conn, sink engine.PacketSink) (engine.Packets, error) {
	return sockets.ServeUDP(l.Queue, nc, sink), nil
}
