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
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// stopTimeout is how long Stop waits for the output of closed sockets.
const stopTimeout = 3 * time.Second

var errEnded = errors.New("loop: the event loop has ended")

// Engine implements engine.Engine.
type Engine struct {
	host    engine.Host
	base    time.Time
	loops   []*eventLoop
	running sync.WaitGroup // loops and readers
	writing sync.WaitGroup
}

// New returns an engine.
func New() *Engine { return &Engine{} }

// Listen implements engine.Engine.
func (*Engine) Listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	return listen(ctx, lc, network, address)
}

// Capacity implements engine.Engine.
func (*Engine) Capacity(int) int { return capacity() }

// Start implements engine.Engine.
func (e *Engine) Start(n int, base time.Time, h engine.Host) error {
	e.host, e.base = h, base
	for i := range n {
		l := &eventLoop{engine: e, index: i, ended: make(chan struct{}), more: make(chan struct{}, 1), sockets: make(map[*socket]struct{})}
		l.wake = func() { h.OnWake(i) }
		l.ticker = time.AfterFunc(engine.Never, func() { l.push(func() { h.OnTick(i) }) })
		e.loops = append(e.loops, l)
		e.running.Go(l.run)
	}
	return nil
}

// Wake implements engine.Engine.
func (e *Engine) Wake(loop int) error {
	if !e.loops[loop].push(e.loops[loop].wake) {
		return errEnded
	}
	return nil
}

// TickAt implements engine.Engine.
func (e *Engine) TickAt(loop int, when time.Duration) {
	t := e.loops[loop].ticker
	if when == engine.Never {
		t.Stop()
		return
	}
	t.Reset(max(0, when-time.Since(e.base)))
}

// Again implements engine.Engine: what the readers have queued meanwhile comes first.
func (e *Engine) Again(loop int) { _ = e.Wake(loop) }

// Enroll implements engine.Engine.
func (e *Engine) Enroll(loop int, nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	l := e.loops[loop]
	s := newSocket(l, nc)
	var answered atomic.Bool
	done := make(chan struct{})
	l.push(func() {
		if answered.CompareAndSwap(false, true) {
			close(done)
			s.open(open)
		}
	})
	go func() {
		select {
		case <-done:
		case <-l.ended:
			if answered.CompareAndSwap(false, true) {
				_ = nc.Close()
				lost(errEnded)
			}
		}
	}()
}

// Lost implements engine.Engine.
func (e *Engine) Lost(loop int) { e.loops[loop].end() }

// Stop implements engine.Engine. A kernel delivers what was written when the process has ended
// already; here that has to be waited for, but not for ever.
func (e *Engine) Stop() error {
	for _, l := range e.loops {
		l.end()
	}
	e.running.Wait()
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

// An eventLoop is a goroutine that does one thing after the other.
type eventLoop struct {
	engine *Engine
	index  int
	wake   func()
	ticker *time.Timer
	over   atomic.Bool
	once   sync.Once
	ended  chan struct{} // closed when over
	more   chan struct{} // holds a value when there may be something in the queue

	mu    sync.Mutex
	queue []func()

	sockets map[*socket]struct{} // those that are open; the loop's own
}

// push has f run on the loop, unless that has ended.
func (l *eventLoop) push(f func()) bool {
	if l.over.Load() {
		return false
	}
	l.mu.Lock()
	l.queue = append(l.queue, f)
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default: // it will look
	}
	return true
}

func (l *eventLoop) end() {
	l.once.Do(func() {
		l.over.Store(true)
		close(l.ended)
		l.ticker.Stop()
	})
}

// run is the loop. It closes what is still open when it ends, also if a callback ends the
// goroutine.
func (l *eventLoop) run() {
	defer func() {
		l.end()
		for s := range l.sockets {
			s.Close(false)
		}
	}()
	var batch []func()
	for {
		select {
		case <-l.more:
		case <-l.ended:
			return
		}
		l.mu.Lock()
		batch, l.queue = l.queue, batch[:0]
		l.mu.Unlock()
		for i, f := range batch {
			if l.over.Load() {
				return
			}
			batch[i] = nil
			f()
		}
	}
}
