//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

// Package gnetengine runs package loop on gnet. It is the only package that imports gnet.
//
// Each loop is a gnet.Client with one event loop and no listener. So each has a ticker goroutine of
// its own, whose OnTick advances the loop's wheel; and accepting, refusing, ceasing to accept and
// the choice of the loop are in our hands. Sockets are gnet's connections, but writing goes
// straight to the descriptor: gnet's outbound buffer is unbounded, tells nobody when it has
// drained, and is dropped when a connection ends.
package gnetengine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// readBuffer is how much one read takes, and each loop has one buffer of this size, of which only
// the pages are resident that reads have filled. With gnet's default of 64 KiB large frames cost
// 2.6 times as much CPU; with 256 KiB a frame of that size, whose header makes it longer, is never
// whole in it and is copied, which is a third of what it costs.
const readBuffer = 512 << 10

var errUnregistered = errors.New("loop: the event loop could not register the connection")

// Engine implements engine.Engine.
type Engine struct {
	sockets.Network

	log      zerolog.Logger
	host     engine.Host
	base     time.Time // what ticks count from
	loops    []*eventLoop
	watch    watcher
	stopping atomic.Bool
}

// New returns an engine that logs what gnet says.
func New(log zerolog.Logger) *Engine { return &Engine{log: log} }

// eventLoop is one gnet loop, gnet's event handler for it, and what we have waiting for it.
type eventLoop struct {
	gnet.BuiltinEventEngine
	engine *Engine
	index  int
	client *gnet.Client
	gnet   gnet.EventLoop
	peer   int // the descriptor of the anchor's other end
	ended  chan struct{}
	once   sync.Once
	ticker ticker

	reserve reserve
	next    chan *ticket // for a goroutine that waits in handOverAll
	waiting atomic.Bool  // there is one

	enrolling sync.WaitGroup // what runs beside the loop and waits for it

	mu       sync.Mutex
	stopped  bool                 // nothing more may wait for the loop
	writable []*socket            // told by the watcher to be writable, or broken, not yet passed on
	tickets  map[*ticket]struct{} // of connections on their way here; nil: the loop has ended
}

// Start implements engine.Engine.
func (e *Engine) Start(n int, base time.Time, h engine.Host) error {
	e.host, e.base = h, base
	e.watch.notify = func(s *socket) { s.loop.notify(s) }
	for i := range n {
		l := &eventLoop{engine: e, index: i, ended: make(chan struct{}),
			next: make(chan *ticket), tickets: make(map[*ticket]struct{})}
		if err := l.start(); err != nil {
			return fmt.Errorf("loop: cannot start event loop %d: %w", i, err)
		}
	}
	return nil
}

// start brings up the loop, and enrolls its anchor.
func (l *eventLoop) start() (err error) {
	l.ticker.init()
	l.client, err = gnet.NewClient(l,
		gnet.WithNumEventLoop(1),
		gnet.WithTicker(true),
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
	t := &ticket{loop: l}
	if _, err = l.client.EnrollContext(anchor, t); err == nil && !t.opened {
		err = errUnregistered
	}
	if err != nil {
		return err
	}
	l.Execute(l.reserve.fill)
	return nil
}

// beside runs f, which waits for the loop, on a goroutine. False: the loop is being stopped. gnet
// forgets who waits when it has stopped, so stop waits for them before that.
func (l *eventLoop) beside(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.enrolling.Go(f)
	return true
}

// besideFor is how long stop waits for them at most: a loop that is blocked takes nobody.
const besideFor = time.Second

func (l *eventLoop) stop() error {
	l.ticker.stop()
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	enrolled := make(chan struct{})
	go func() {
		l.enrolling.Wait()
		close(enrolled)
	}()
	select {
	case <-enrolled:
	case <-l.ended:
	case <-time.After(besideFor):
	}
	err := l.client.Stop()
	l.reserve.drop()
	return errors.Join(err, unix.Close(l.peer))
}

// Wake implements engine.Engine.
func (e *Engine) Wake(loop int) error {
	return e.loops[loop].gnet.Execute(context.Background(), (*wake)(e.loops[loop]))
}

// wake makes an eventLoop a gnet.Runnable without an allocation.
type wake eventLoop

func (w *wake) Run(context.Context) error {
	w.engine.host.OnWake(w.index)
	return nil
}

// Stop implements engine.Engine.
func (e *Engine) Stop() (err error) {
	e.stopping.Store(true)
	e.watch.stop()
	for _, l := range e.loops {
		err = errors.Join(err, l.stop())
	}
	return err
}

// OnOpen implements gnet.EventHandler.
func (l *eventLoop) OnOpen(c gnet.Conn) (out []byte, action gnet.Action) {
	t := c.Context().(*ticket)
	t.opened = true
	switch {
	case t.resume != nil:
		t.resume.attach(c)
		return nil, gnet.None
	case t.open == nil:
		l.gnet = c.EventLoop()
		return nil, gnet.None
	}
	if !l.claim(t) { // it counts as lost
		c.SetContext(nil)
		return nil, gnet.Close
	}
	s := &socket{loop: l, conn: c, fd: int32(c.Fd())}
	c.SetContext(s)
	if sink := t.open(s); s.sink == nil { // otherwise Divert was called
		s.sink = sink
	}
	if s.sink == nil && !s.is(markClosed) {
		s.Close(false)
	}
	return nil, gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (l *eventLoop) OnTraffic(c gnet.Conn) gnet.Action {
	// Next is right with -1, "all of it": as nothing is ever left in gnet's inbound buffer, it
	// copies nothing.
	data, _ := c.Next(-1)
	switch x := c.Context().(type) {
	case *socket:
		if !x.is(markClosed) {
			x.sink.Readable(data)
		}
	case *ticket: // an anchor: see Again
		l.engine.host.OnWake(l.index)
	}
	return gnet.None
}

// OnClose implements gnet.EventHandler. gnet calls it for what the peer or the system did, and from
// within Close for what we did.
func (l *eventLoop) OnClose(c gnet.Conn, err error) gnet.Action {
	switch x := c.Context().(type) {
	case *socket:
		x.broken(err)
	case *ticket:
		if x.opened && x.resume == nil { // an anchor: the loop is ending
			l.end()
			if !l.engine.stopping.Load() {
				l.engine.host.Ended(l.index, err)
			}
		}
	}
	return gnet.None
}

// Lost implements engine.Engine.
func (e *Engine) Lost(loop int) { e.loops[loop].end() }

// end releases who waits for the loop.
func (l *eventLoop) end() {
	l.once.Do(func() {
		close(l.ended)
		l.mu.Lock()
		lost := l.tickets
		l.tickets = nil
		l.mu.Unlock()
		for t := range lost {
			go t.lose(engine.ErrEnded)
		}
	})
}

// ListenPacket implements engine.Engine.
func (e *Engine) ListenPacket(ctx context.Context, lc net.ListenConfig, network, address string, n int) (
	engine.PacketPort, error) {
	return netpackets.Listen(ctx, lc, network, address, n, func(i int) engine.Loop { return e.loops[i] })
}

// ConnectPacket implements engine.Engine.
func (e *Engine) ConnectPacket(loop int, control engine.Control, local, remote netip.AddrPort, sink engine.PacketSink) (
	engine.Packets, netip.AddrPort, error) {
	return netpackets.Dial(e.loops[loop], control, local, remote, sink)
}

// Execute implements engine.Loop.
func (l *eventLoop) Execute(f func()) { _ = l.gnet.Execute(context.Background(), run(f)) }

// Ended implements engine.Loop.
func (l *eventLoop) Ended() <-chan struct{} { return l.ended }

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
		return engine.ErrEnded
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return err
}
