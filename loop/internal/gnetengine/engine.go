//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

// Package gnetengine runs package loop on gnet. It is the only package that imports gnet.
//
// Each loop is a gnet.Client with one event loop and no listener. So each has a ticker goroutine of
// its own, whose OnTick advances the loop's wheel; and accepting, refusing, ceasing to accept and
// the choice of the loop are in our hands. Sockets are gnet's connections, but writing goes
// straight to the descriptor: gnet's outbound buffer is unbounded, does not report when it has
// drained, and is dropped when a connection ends.
//
// # What gnet does, and what this package does about it
//
// Read in the source of gnet v2.9.8, and tested. Check it again when the version changes.
//
//   - The ticker: gnet calls OnTick on a goroutine, once per engine, and again after the delay
//     that it has returned. gnet knows no deadlines: a tick of 1 ms over 10,000 idle connections
//     costs 3 % of a core. Client.Stop waits for the ticker, so the engine first wakes a sleeping
//     OnTick.
//   - Loops: gnet exposes its loops only to connections. So each loop has an anchor: one end of a
//     socket pair, enrolled before the server listens. When an anchor closes, its loop exits.
//   - Enrolling: EnrollContext takes connections of package net, duplicates the descriptor and
//     closes the original. It waits until OnOpen has run, or forever if the loop has exited. So
//     the engine calls it on a separate goroutine. A registration that failed can come back as a
//     dead connection without an error, so OnOpen notes that it ran.
//   - Accepting: gnet's acceptor stops the whole engine when descriptors run out, and cannot stop
//     accepting. So package net accepts. That adds each connection to Go's poller, removes it
//     again, and duplicates its descriptor: short connections pay for this.
//   - Tasks: Execute allocates and drops errors. Urgent tasks run before the loop polls again, and
//     more than 1,024 of them lose their order. So the engine does not use it. A post, a tick, or
//     the loop itself makes the anchor readable, so the loop polls all sockets first.
//   - Closing: A Write that fails closes the connection within Write. After that, another file may
//     reuse the descriptor number, so the socket drops it. gnet has no half-close.
//   - Input: Peek(-1) copies leftover and fresh input each time. So a loop takes the read buffer
//     with Next(-1), and keeps an incomplete frame in its own buffer. gnet reads 32 KiB
//     (sockets.ReadBuffer). When that is full the engine reads on as far as Sink.Room says: to 48
//     KiB, or up to 512 KiB where frames are long, since copies cost those more.
//   - Output: gnet's outbound buffer has no limit, and gnet does not report when it has drained.
//     So the engine writes output straight to the descriptor: on Linux, up to 512 KiB with one raw
//     send, without notice to Go's scheduler, and more with write. On Linux, a goroutine for each
//     loop watches full and paused sockets in an extra epoll instance. On other systems, the wheel
//     tries again after 1 to 64 ms.
//   - Panics: gnet does not recover from panics. golang.org/x/sync v0.14 and v0.15 leave a dead
//     loop in a running process: do not require those versions.
//   - The logger and the worker pool are global to the process. The engine always passes its own
//     logger, which drops entries below error level. It does not touch the pool.
package gnetengine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// enrollTimeout is how long Stop waits for connections that are being enrolled: a loop that is
// blocked takes none.
const enrollTimeout = time.Second

var errUnregistered = errors.New("loop: the event loop could not register the connection")

// Engine implements engine.Engine.
type Engine struct {
	sockets.System

	log      zerolog.Logger
	loops    []*gnetLoop
	stopping atomic.Bool
}

// New returns an engine that logs what gnet says.
func New(log zerolog.Logger) *Engine { return &Engine{log: log} }

// gnetLoop implements engine.Loop: one gnet loop, gnet's event handler for it, and our tasks for
// it.
type gnetLoop struct {
	gnet.BuiltinEventEngine
	*engine.Queue // of tasks; any goroutine may use it

	engine  *Engine
	host    engine.Host
	base    time.Time // what ticks count from
	client  *gnet.Client
	gnet    gnet.EventLoop
	reserve []int // see keepReserve
	once    sync.Once
	ticker  ticker
	watcher watcher
	carrier carrier
	wants   wants
	input   []byte // of readMore

	resuming map[*socket]*ticket  // sockets on their way back to gnet
	early    map[*socket]struct{} // sockets that cannot be watched, and are about to be ready

	peerMu sync.Mutex
	peer   int // the descriptor of the anchor's other end; -1: it is closed

	mu      sync.Mutex
	tickets map[*ticket]struct{} // of connections being enrolled; nil: the loop has ended
}

// Start implements engine.Engine.
func (e *Engine) Start(base time.Time, hosts []engine.Host) ([]engine.Loop, error) {
	loops := make([]engine.Loop, len(hosts))
	for i, h := range hosts {
		l := &gnetLoop{engine: e, host: h, base: base, peer: -1, tickets: make(map[*ticket]struct{}),
			resuming: make(map[*socket]*ticket), early: make(map[*socket]struct{})}
		l.Queue = engine.NewQueue(l.pull)
		if err := l.start(); err != nil {
			return nil, fmt.Errorf("loop: cannot start event loop %d: %w", i, err)
		}
		loops[i] = l
	}
	return loops, nil
}

// start brings up the loop, and enrolls its anchor.
func (l *gnetLoop) start() (err error) {
	l.ticker.init()
	l.client, err = gnet.NewClient(l,
		gnet.WithNumEventLoop(1),
		gnet.WithTicker(true),
		gnet.WithLogger(logger{l.engine.log}),
		gnet.WithTCPNoDelay(gnet.TCPDelay), // leave it as package net has set it: without delay
		gnet.WithReadBufferCap(sockets.ReadBuffer))
	if err != nil {
		return err
	}
	anchor, peer, err := socketPair()
	if err != nil {
		return err
	}
	if err := errors.Join(unix.SetNonblock(peer, true), l.client.Start()); err != nil {
		return errors.Join(err, anchor.Close(), unix.Close(peer))
	}
	l.peer = peer
	l.engine.loops = append(l.engine.loops, l) // from here on Stop stops it
	if _, err := l.client.EnrollContext(anchor, l); err != nil {
		return err
	}
	if l.gnet == nil {
		return errUnregistered
	}
	l.Execute(l.keepReserve)
	return nil
}

// Stop implements engine.Engine.
func (e *Engine) Stop() (err error) {
	e.stopping.Store(true)
	for _, l := range e.loops {
		err = errors.Join(err, l.stop())
	}
	return err
}

// stop ends the loop. Once gnet has stopped, calls of EnrollContext that wait in it never return,
// so stop waits for them first.
func (l *gnetLoop) stop() error {
	close(l.ticker.quit)
	for end := time.Now().Add(enrollTimeout); l.isExpecting() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	err := l.client.Stop()
	l.carrier.end()
	l.freeReserve()
	l.peerMu.Lock() // other goroutines may still call pull
	defer l.peerMu.Unlock()
	peer := l.peer
	l.peer = -1
	return errors.Join(err, unix.Close(peer))
}

// A ticket is the gnet context of a connection until it is open. Its size differs from that of
// anything that lives as long as a connection: garbage of the same size would leave holes in memory
// between those.
type ticket struct {
	conn    net.Conn
	wrapped bool            // conn is the carrier's
	open    func(gnet.Conn) // on the loop, or
	lost    func(error)     // on any goroutine
}

// Enroll implements engine.Loop.
func (l *gnetLoop) Enroll(nc net.Conn, open func(engine.Socket) engine.Sink, lost func(error)) {
	hasEnded := nc.RemoteAddr() == nil // or was reset: the system has forgotten the address, which gnet wants
	if hasEnded {
		before := nc
		err := sockets.With(before, func(fd int) (err error) { nc, err = l.carrier.wrap(fd); return err })
		if _ = before.Close(); err != nil {
			go lost(err)
			return
		}
	}
	l.enroll(&ticket{conn: nc, wrapped: hasEnded, lost: lost, open: func(c gnet.Conn) {
		s := &socket{loop: l, conn: c, Descriptor: sockets.Descriptor(c.Fd())}
		c.SetContext(s)
		s.sink = open(s)
	}})
}

// expect registers a ticket, unless the loop has ended.
func (l *gnetLoop) expect(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tickets == nil {
		return false
	}
	l.tickets[t] = struct{}{}
	return true
}

// enroll brings a connection to the loop. gnet's EnrollContext blocks until OnOpen has run, and for
// ever if the loop ends before, so each call has its own goroutine.
func (l *gnetLoop) enroll(t *ticket) {
	if l.expect(t) {
		go l.enrollBlocking(t)
	} else {
		go t.lose(engine.ErrEnded)
	}
}

// enrollBlocking gives the connection to gnet, which takes a copy of its descriptor and closes it.
// If the registration fails, gnet returns a dead connection and no error, but then t is still
// unclaimed.
func (l *gnetLoop) enrollBlocking(t *ticket) {
	if _, err := l.client.EnrollContext(t.conn, t); l.claim(t) {
		t.lose(cmp.Or(err, errUnregistered))
	}
}

// lose closes a connection that no loop has opened. It is called once, after a claim.
func (t *ticket) lose(err error) {
	closed := t.conn.Close()
	if errors.Is(closed, net.ErrClosed) { // by gnet
		closed = nil
	}
	t.lost(errors.Join(err, closed))
}

// claim takes t out of the tickets. False: another goroutine has claimed it, or the loop has ended.
func (l *gnetLoop) claim(t *ticket) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.tickets[t]
	delete(l.tickets, t)
	return ok
}

// isExpecting reports whether a connection is being enrolled.
func (l *gnetLoop) isExpecting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tickets) > 0
}

// OnOpen implements gnet.EventHandler.
func (l *gnetLoop) OnOpen(c gnet.Conn) (out []byte, action gnet.Action) {
	t, ok := c.Context().(*ticket)
	if !ok { // the anchor
		l.gnet = c.EventLoop()
		return nil, gnet.None
	}
	c.SetContext(nil)
	if !l.claim(t) { // it counts as lost
		return nil, gnet.Close
	}
	if t.wrapped {
		l.carrier.unwrap(t.conn)
	}
	t.open(c)
	return nil, gnet.None
}

// OnTraffic implements gnet.EventHandler.
func (l *gnetLoop) OnTraffic(c gnet.Conn) gnet.Action {
	// Next is right with -1, "all of it": as nothing is ever left in gnet's inbound buffer, it
	// copies nothing.
	data, _ := c.Next(-1)
	s, ok := c.Context().(*socket)
	switch {
	case !ok: // the anchor
		l.polled()
	case len(data) == sockets.ReadBuffer:
		s.sink.Readable(l.readMore(s, data))
	default:
		s.sink.Readable(data)
	}
	return gnet.None
}

// readMore reads on where gnet's read has filled its buffer.
func (l *gnetLoop) readMore(s *socket, data []byte) []byte {
	if l.input == nil {
		l.input = make([]byte, sockets.MaxRead)
	}
	copy(l.input, data)
	return l.input[:sockets.More(s.Descriptor, l.input, s.sink)]
}

// OnClose implements gnet.EventHandler. gnet calls it for what the peer or the system did, and from
// within Close for what we did, when there is no context any more.
func (l *gnetLoop) OnClose(c gnet.Conn, err error) gnet.Action {
	switch x := c.Context().(type) {
	case *socket:
		x.broken(cause(err))
	case *gnetLoop: // the anchor: the loop is ending
		l.end()
		if !l.engine.stopping.Load() {
			l.host.LoopEnded(err)
		}
	}
	return gnet.None
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

// Lost implements engine.Loop.
func (l *gnetLoop) Lost() { l.end() }

// end ends the queue and loses the connections that are being enrolled. It is called on the loop.
func (l *gnetLoop) end() {
	l.once.Do(func() {
		l.Queue.End()
		l.watcher.stop()
		l.mu.Lock()
		lost := l.tickets
		l.tickets = nil
		l.mu.Unlock()
		for t := range lost {
			go t.lose(engine.ErrEnded)
		}
	})
}

// ServePacket implements engine.Loop.
func (l *gnetLoop) ServePacket(nc net.Conn, sink engine.PacketSink) (engine.Packets, error) {
	return sockets.ServeUDP(l.Queue, nc, sink), nil
}
