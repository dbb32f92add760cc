//go:build linux && !386 && !s390x

// Package epoll runs package loop on Linux' own epoll, without gnet. Each loop is a goroutine with
// an epoll instance of its own, in which its sockets and its timer are. It waits in Go's poller: a
// loop that waits holds no P.
package epoll

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
	"github.com/loopwheel/loopwheel/loop/internal/unixsock"
)

// readBuffer is how much one read takes, and each loop has one buffer of this size, of which only
// the pages are resident that reads have filled. With 64 KiB large frames cost 2.6 times as much
// CPU; with 256 KiB a frame of that size, whose header makes it longer, is never whole in it and is
// copied, which is a third of what it costs.
const readBuffer = 512 << 10

var errEnded = errors.New("loop: the event loop has ended")

// Engine implements engine.Engine.
type Engine struct {
	host  engine.Host
	loops []*eventLoop
}

// New returns an engine.
func New() *Engine { return &Engine{} }

// eventLoop is one loop. A field is the loop's own unless its comment says otherwise.
type eventLoop struct {
	engine  *Engine
	index   int
	poll    *poller
	input   []byte // what sockets read into
	pipe    *kernelPipe
	packets *netpackets.Batch // what UDP sockets read into

	running sync.WaitGroup // the goroutine; any may wait for it
	once    sync.Once
	ended   chan struct{} // closed when the loop takes no more tasks
}

// Capacity implements engine.Engine by the limit of open files. Some of that is left for loops,
// listeners, logs and the program's own files, and a share for sockets that are being accepted.
func (*Engine) Capacity(loops int) int {
	n := math.MaxInt32
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		n = int(min(uint64(lim.Cur), math.MaxInt32))
	}
	return max(1, n-n/16-32-10*loops)
}

// Listen implements engine.Engine.
func (*Engine) Listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	if network == "unix" {
		return unixsock.Listen(ctx, lc, address)
	}
	return lc.Listen(ctx, network, address)
}

// Start implements engine.Engine. Each loop has to show that its timer and other goroutines wake
// it.
func (e *Engine) Start(n int, base time.Time, h engine.Host) error {
	e.host = h
	for i := range n {
		l := &eventLoop{engine: e, index: i, ended: make(chan struct{})}
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
	defer l.end() // also if a callback has ended the goroutine
	if err := l.poll.run(); err != nil {
		l.end()
		l.poll.tellEnd(errEnded)
		l.engine.host.Ended(l.index, fmt.Errorf("loop: event loop %d ended: %w", l.index, err))
	}
}

// end releases who waits for the loop.
func (l *eventLoop) end() { l.once.Do(func() { close(l.ended) }) }

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
func (e *Engine) Lost(loop int) { e.loops[loop].end() }

// Stop implements engine.Engine.
func (e *Engine) Stop() error {
	for _, l := range e.loops {
		l.poll.leave()
	}
	for _, l := range e.loops {
		l.running.Wait()
		l.poll.closeAll()
		l.pipe.close()
	}
	return nil
}

// execute has f run on the loop. Any goroutine may call it.
func (l *eventLoop) execute(f func()) { l.poll.execute(f) }

// call runs f on the loop, and waits for it. errEnded: the loop ends, and f was not called, or has
// ended it.
func (l *eventLoop) call(f func() error) error {
	result := make(chan error, 1)
	l.execute(func() { result <- f() })
	select {
	case err := <-result:
		return err
	case <-l.ended:
	}
	select {
	case err := <-result:
		return err
	default:
		return errEnded
	}
}

// Enroll implements engine.Engine.
func (e *Engine) Enroll(loop int, nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	go func() {
		l := e.loops[loop]
		_, tcp := nc.(*net.TCPConn)
		fd, err := takeOver(nc)
		if err != nil {
			lost(err)
			return
		}
		s := &socket{loop: l, fd: fd, unix: !tcp}
		var begun atomic.Bool
		err = l.call(func() error {
			if !begun.CompareAndSwap(false, true) {
				return nil
			}
			return s.begin(open)
		})
		if err == errEnded && begun.CompareAndSwap(false, true) {
			lost(errors.Join(err, unix.Close(fd)))
		} else if err != nil && err != errEnded {
			lost(err)
		}
	}()
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

// Dial implements engine.Connector.
func (*Engine) Dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
	return d.DialContext(ctx, network, address)
}
