package netengine

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netpackets"
)

const (
	minRead, maxRead = 4 << 10, 64 << 10 // what one read takes: more when there is more

	// maxUnsent is how much output a socket takes before it counts as full: as much as a kernel
	// would.
	maxUnsent = 256 << 10

	// orphanTimeout is how long output of a closed socket may take to go.
	orphanTimeout = time.Minute
)

// A socket implements engine.Socket. A field is the loop's own unless it is said to be guarded by
// mu.
type socket struct {
	loop   *eventLoop
	conn   net.Conn
	sink   engine.Sink
	closed bool
	paused bool
	resets bool // reading ended with more than the end of the stream
	over   bool // the sink knows the end

	// The reader hands over a piece, or the end, and waits for taken before it goes on.
	piece   []byte
	end     error
	given   bool          // the loop has the piece, or the end, and the sink has not
	handing bool          // the sink is being given the piece
	taken   chan struct{} // the piece was used
	deliver func()

	mu      sync.Mutex
	arrived bool // something is with the loop, or on its way there
	out     []byte
	writing bool  // the writer runs, and has what it wrote last
	flight  int   // of that, bytes
	failure error // of the writer
	waiting bool  // Sink.Writable is to be called
	ends    bool  // CloseWrite
	gone    bool  // Close

	detached bool // Detach
}

// newSocket makes a socket of nc, of which no close waits for the peer, as one that lingers does.
func newSocket(l *eventLoop, nc net.Conn) *socket {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(-1)
	}
	s := &socket{loop: l, conn: nc, taken: make(chan struct{}, 1)}
	s.deliver = s.arrive
	return s
}

// open is the first thing on the loop.
func (s *socket) open(open func(engine.Socket) engine.Sink) {
	s.loop.sockets[s] = struct{}{}
	if sink := open(s); s.sink == nil { // otherwise Divert was called
		s.sink = sink
	}
	if s.sink == nil {
		s.Close(false)
	}
	if !s.closed {
		s.loop.engine.running.Go(s.read)
	}
}

// read is the reader's goroutine.
func (s *socket) read() {
	buf := make([]byte, minRead)
	for {
		n, err := s.conn.Read(buf)
		s.piece, s.end = buf[:n], err
		s.mu.Lock()
		s.arrived = true
		s.mu.Unlock()
		if !s.loop.push(s.deliver) {
			return
		}
		select {
		case <-s.taken:
		case <-s.loop.ended:
			return
		}
		if err != nil || s.isDetached() {
			return
		}
		if n == len(buf) && n < maxRead {
			buf = make([]byte, 2*n)
		}
	}
}

// arrive is told of what the reader has read. A pause keeps it, but for a reset.
func (s *socket) arrive() {
	s.given = true
	s.handOver()
}

func (s *socket) handOver() {
	if !s.given {
		return // piece and end are the reader's
	}
	reset := s.end != nil && !errors.Is(s.end, io.EOF) && len(s.piece) == 0
	if s.paused && !reset && !s.closed {
		return
	}
	s.given = false
	switch {
	case s.closed:
		s.goOn()
	case len(s.piece) > 0:
		s.readable()
	default:
		s.goOn()
		s.ended(reset)
	}
}

// readable hands over the piece. An end that came with it is an event of its own.
func (s *socket) readable() {
	s.mu.Lock()
	s.arrived = s.end != nil
	s.mu.Unlock()
	s.handing = true
	s.sink.Readable(s.piece)
	s.handing = false
	s.piece = nil
	if s.end == nil || s.closed {
		s.goOn()
		return
	}
	s.given = true
	s.loop.push(s.handOver)
}

// ended tells the sink, which may want to linger.
func (s *socket) ended(reset bool) {
	s.over, s.resets = true, reset
	s.sink.Closed(cause(s.end))
	if s.over {
		s.Close(false)
	}
}

// goOn lets the reader go on, or end.
func (s *socket) goOn() {
	s.mu.Lock()
	s.arrived = false
	s.mu.Unlock()
	s.taken <- struct{}{}
}

// cause returns the end of the stream bare, as package loop compares it.
func cause(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}

// Write implements engine.Socket.
func (s *socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return 0, s.failure
	}
	n := min(len(p), max(0, maxUnsent-len(s.out)-s.flight))
	s.out = append(s.out, p[:n]...)
	s.startWriter()
	return n, nil
}

// Writev implements engine.Socket.
func (s *socket) Writev(bufs [][]byte) (n int, err error) {
	for _, b := range bufs {
		k, err := s.Write(b)
		n += k
		if err != nil && n == 0 {
			return 0, err
		}
		if k < len(b) {
			break
		}
	}
	return n, nil
}

// startWriter starts the writer, unless it runs or has nothing to do. s.mu is held.
func (s *socket) startWriter() {
	if !s.writing && (len(s.out) > 0 || s.ends || s.gone) {
		s.writing = true
		s.loop.engine.writing.Go(s.write)
	}
}

// write is the writer's goroutine: it lives while there is output. It lets go of s.mu only for the
// system call, so that NotifyWritable finds a writer that will still tell, or none.
func (s *socket) write() {
	var batch []byte
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.out) > 0 && s.failure == nil {
		batch, s.out = s.out, batch[:0]
		s.flight = len(batch)
		s.mu.Unlock()
		_, err := s.conn.Write(batch)
		s.mu.Lock()
		s.flight, s.failure = 0, err
		s.tell()
	}
	s.out = batch[:0] // for the next writer
	s.finishWrite()
}

// finishWrite ends the writer, and then what was to end after the output. s.mu is held.
func (s *socket) finishWrite() {
	s.writing, s.flight = false, 0
	switch c, ok := s.conn.(interface{ CloseWrite() error }); {
	case s.gone:
		_ = s.conn.Close()
	case s.ends && ok:
		_ = c.CloseWrite()
	}
	s.ends = false
}

// tell calls Writable, if somebody waits and half of the room is there. s.mu is held.
func (s *socket) tell() {
	if s.waiting && (len(s.out) <= maxUnsent/2 || s.failure != nil) {
		s.waiting = false
		s.loop.push(func() {
			if !s.closed {
				s.sink.Writable()
			}
		})
	}
}

// NotifyWritable implements engine.Socket.
func (s *socket) NotifyWritable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = true
	if !s.writing {
		s.tell()
	}
	return true
}

// Pending implements engine.Socket. The reader reads ahead, so what has come is with it, unless the
// process was stopped and it had no time yet.
func (s *socket) Pending() bool {
	// The second look is for what was on its way from one place to the other.
	return !s.over && (s.hasArrived() || netpackets.InKernel(s.conn) || s.hasArrived())
}

func (s *socket) hasArrived() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

// Unsent implements engine.Socket, by what waits here, and what the kernel has besides if it tells.
func (s *socket) Unsent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	here, there := len(s.out)+s.flight, kernelHas(s.conn)
	if here > 0 {
		return here + max(0, there)
	}
	return there
}

// Pause implements engine.Socket. The piece that the reader has read ahead waits, and so does the
// reader.
func (s *socket) Pause() error {
	s.paused = true
	return nil
}

// Resume implements engine.Socket.
func (s *socket) Resume() {
	s.paused = false
	s.loop.push(s.handOver)
}

// CloseWrite implements engine.Socket.
func (s *socket) CloseWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = true
	s.startWriter()
}

// Linger implements engine.Socket.
func (s *socket) Linger() bool {
	s.over = s.resets
	return !s.resets
}

// Divert implements engine.Socket.
func (s *socket) Divert(to engine.Sink) { s.sink = to }

// Close implements engine.Socket. Soft: what was written goes out first, as from a kernel.
func (s *socket) Close(hard bool) {
	if s.closed {
		return
	}
	s.closed = true
	delete(s.loop.sockets, s)
	if s.given {
		s.given = false
		s.goOn()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	if tcp, ok := s.conn.(*net.TCPConn); ok && hard {
		_ = tcp.SetLinger(0)
	}
	if hard {
		s.out, s.failure = nil, os.ErrClosed
		_ = s.conn.Close()
		return
	}
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // the reader ends, and the writer may go on
	_ = s.conn.SetWriteDeadline(time.Now().Add(orphanTimeout))
	s.startWriter()
}

// SyscallConn implements syscall.Conn.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	sc, ok := s.conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sc.SyscallConn()
}
