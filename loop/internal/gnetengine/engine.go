//go:build unix

// Package gnetengine runs package loop on gnet. It is the only package that imports gnet.
//
// Each loop is a gnet.Client with one event loop and no listener, so that accepting, refusing,
// ceasing to accept and the choice of the loop are in our hands. gnet runs the loop; on Linux the
// sockets are in an epoll instance of ours, by which its goroutine stays: see poller. Elsewhere
// they are gnet's connections, but writing goes straight to the descriptor, because gnet's outbound
// buffer is unbounded, tells nobody when it has drained, and is dropped when a connection ends.
//
// gnet's worker pool, which is global, wakes up twice a second for nothing, and is needed only to
// enrol by EventLoop.Enroll and Register. New releases it.
package gnetengine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/pool/goroutine"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
	"github.com/loopwheel/loopwheel/loop/internal/procs"
	"github.com/loopwheel/loopwheel/loop/internal/unixsock"
)

// readBuffer is how much one read takes, and each loop has one buffer of this size, of which only
// the pages are resident that reads have filled. With gnet's default of 64 KiB large frames cost
// 2.6 times as much CPU; with 256 KiB a frame of that size, whose header makes it longer, is never
// whole in it and is copied, which is a third of what it costs.
const readBuffer = 512 << 10

var (
	errEnded        = errors.New("loop: the event loop has ended")
	errUnregistered = errors.New("loop: the event loop could not register the connection")
)

// Engine implements engine.Engine.
type Engine struct {
	gnet.BuiltinEventEngine
	log      zerolog.Logger
	host     engine.Host
	loops    []*eventLoop
	watch    watcher
	stopping atomic.Bool
	plain    bool // without pollers: asked for, or they do not work here

	// KeepProcs leaves GOMAXPROCS alone; see package procs. It is set before Start.
	KeepProcs bool
	reserved  int // loops that procs knows of
}

// NewPlain returns an engine that does without pollers, as where they do not work.
func NewPlain(log zerolog.Logger) *Engine {
	e := New(log)
	e.plain = true
	return e
}

// New returns an engine that logs what gnet says.
func New(log zerolog.Logger) *Engine {
	goroutine.DefaultWorkerPool.Release()
	return &Engine{log: log}
}

// eventLoop is one gnet loop and what we have waiting for it.
type eventLoop struct {
	engine *Engine
	index  int
	client *gnet.Client
	gnet   gnet.EventLoop
	peer   int // the descriptor of the anchor's other end
	ended  chan struct{}
	once   sync.Once

	reserve reserve
	poll    *poller // nil: sockets are gnet's
	input   []byte  // what direct sockets read into
	pipe    *kernelPipe
	packets *netpackets.Batch // what UDP sockets read into

	mu       sync.Mutex
	writable []*socket // told by the watcher to be writable, or broken, not yet passed on
}

// Capacity implements engine.Engine by the limit of open files. Some of that is left for loops,
// listeners, logs and the program's own files, and a share for sockets that are being accepted,
// which have two descriptors for a moment.
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

// Start implements engine.Engine.
func (e *Engine) Start(n int, h engine.Host) error {
	e.host = h
	e.reserveProc(n)
	e.watch.notify = func(s *socket) { s.loop.notify(s) }
	for i := range n {
		l := &eventLoop{engine: e, index: i, ended: make(chan struct{})}
		if err := l.start(); err != nil {
			return fmt.Errorf("loop: cannot start event loop %d: %w", i, err)
		}
	}
	return nil
}

// reserveProc sees to it that goroutines have a P when all loops sleep.
func (e *Engine) reserveProc(loops int) {
	if e.KeepProcs {
		return
	}
	e.reserved = loops
	if old, now := procs.Reserve(loops); now != old {
		e.log.Info().Int("from", old).Int("to", now).Int("loops", loops).
			Msg("GOMAXPROCS is raised")
	}
}

// start brings up the loop, and enrols its anchor.
func (l *eventLoop) start() (err error) {
	l.client, err = gnet.NewClient(l.engine,
		gnet.WithNumEventLoop(1),
		gnet.WithLogger(logger{l.engine.log}),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // leave it as package net has set it: without delay
		gnet.WithReadBufferCap(readBuffer))
	if err != nil {
		return err
	}
	anchor, peer, err := socketPair()
	if err != nil {
		return err
	}
	if err := l.client.Start(); err != nil {
		return errors.Join(err, anchor.Close(), unix.Close(peer))
	}
	l.peer = peer
	l.engine.loops = append(l.engine.loops, l) // from here on Stop stops it
	if _, err = l.client.EnrollContext(anchor, &ticket{loop: l}); err == nil && l.gnet == nil {
		err = errUnregistered
	}
	if err != nil {
		return err
	}
	if !l.engine.plain {
		if err = l.startPoller(); err == nil || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			return err
		}
		if !errors.Is(err, errors.ErrUnsupported) { // it is no news where there are none
			l.engine.log.Info().Err(err).Int("loop", l.index).Msg("sockets are gnet's, and watched by a goroutine")
		}
		l.engine.plain = l.index == 0 // then the others need not try
	}
	l.execute(l.reserve.fill)
	return nil
}

func (l *eventLoop) stop() error {
	if l.poll != nil {
		l.poll.leave()
	}
	err := l.client.Stop()
	l.reserve.drop()
	if l.poll != nil {
		l.poll.stop()
		l.pipe.close()
	}
	return errors.Join(err, unix.Close(l.peer))
}

// Wake implements engine.Engine.
func (e *Engine) Wake(loop int) error {
	l := e.loops[loop]
	if l.poll != nil {
		l.poll.wake()
		return nil
	}
	return l.gnet.Execute(context.Background(), (*turn)(l))
}

// turn makes an eventLoop a gnet.Runnable without an allocation.
type turn eventLoop

func (t *turn) Run(context.Context) error {
	t.engine.host.Turn(t.index)
	return nil
}

// Stop implements engine.Engine.
func (e *Engine) Stop() (err error) {
	e.stopping.Store(true)
	e.watch.stop()
	for _, l := range e.loops {
		err = errors.Join(err, l.stop())
	}
	procs.Release(e.reserved)
	e.reserved = 0
	return err
}

// OnOpen implements gnet.EventHandler.
func (e *Engine) OnOpen(c gnet.Conn) (out []byte, action gnet.Action) {
	t := c.Context().(*ticket)
	t.opened = true
	switch {
	case t.resume != nil:
		t.resume.attach(c)
		return nil, gnet.None
	case t.open == nil:
		t.loop.gnet = c.EventLoop()
		return nil, gnet.None
	}
	s := &socket{loop: t.loop, conn: c, fd: int32(c.Fd())}
	c.SetContext(s)
	s.sink = t.open(s)
	if s.sink == nil && !s.is(markClosed) {
		s.Close(false)
	}
	t.served = true
	return nil, gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (e *Engine) OnTraffic(c gnet.Conn) gnet.Action {
	// Next is right with -1, "all of it": as nothing is ever left in gnet's inbound buffer, it
	// copies nothing.
	data, _ := c.Next(-1)
	switch x := c.Context().(type) {
	case *socket:
		if !x.is(markClosed) {
			x.sink.Readable(data)
		}
	case *ticket: // an anchor: see Again
		e.host.Turn(x.loop.index)
	}
	return gnet.None
}

// OnClose implements gnet.EventHandler. gnet calls it for what the peer or the system did, and from
// within Close for what we did.
func (e *Engine) OnClose(c gnet.Conn, err error) gnet.Action {
	switch x := c.Context().(type) {
	case *socket:
		x.broken(err)
	case *ticket:
		if x.opened && x.resume == nil { // an anchor: its loop is ending
			e.ended(x.loop, err)
		}
	}
	return gnet.None
}

// Lost implements engine.Engine.
func (e *Engine) Lost(loop int) { e.loops[loop].end() }

// end releases who waits for the loop.
func (l *eventLoop) end() { l.once.Do(func() { close(l.ended) }) }

func (e *Engine) ended(l *eventLoop, err error) {
	l.end()
	if e.stopping.Load() {
		return
	}
	if l.poll != nil {
		if cause := l.poll.end(errEnded); cause != nil {
			err = fmt.Errorf("loop: event loop %d ended: %w", l.index, cause)
		}
	}
	e.host.Ended(l.index, err)
}

// packetLoop is a loop for package netpackets, which does UDP where there are no pollers.
func (e *Engine) packetLoop(i int) netpackets.Loop {
	return netpackets.Loop{Execute: e.loops[i].execute, Ended: e.loops[i].ended}
}

// execute runs f on the loop.
func (l *eventLoop) execute(f func()) {
	if l.poll != nil {
		l.poll.execute(f)
		return
	}
	_ = l.gnet.Execute(context.Background(), run(f))
}

// run is a function as a gnet.Runnable.
type run func()

func (f run) Run(context.Context) error {
	f()
	return nil
}

// notify passes on, from any goroutine, that s is writable, or broken.
func (l *eventLoop) notify(s *socket) {
	l.mu.Lock()
	first := len(l.writable) == 0
	l.writable = append(l.writable, s)
	l.mu.Unlock()
	if first {
		_ = l.gnet.Execute(context.Background(), (*writables)(l))
	}
}

// writables is the gnet.Runnable that tells the sinks.
type writables eventLoop

func (w *writables) Run(context.Context) error {
	w.mu.Lock()
	ready := w.writable
	w.writable = nil
	w.mu.Unlock()
	for _, s := range ready {
		s.ready()
	}
	return nil
}

// cause returns err without what gnet put around it. nil is what gnet says when a loop ends with
// all its connections.
func cause(err error) error {
	switch {
	case err == nil:
		return errEnded
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return err
}
