package netengine

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

const (
	minRead, maxRead = 4 << 10, 64 << 10 // what one read takes: more when there is more

	// maxUnsent is how much output a socket takes before it counts as full: as much as a kernel
	// would.
	maxUnsent = 256 << 10

	// detachTimeout is how long after its last write a writer counts as slow, and detachLook how
	// often Detach looks.
	detachTimeout, detachLook = 100 * time.Millisecond, 100 * time.Microsecond

	// pausedLook is how often a paused socket with input is looked at, whether its peer has reset
	// it.
	pausedLook = 20 * time.Millisecond

	// orphanTimeout is how long output of a closed socket may take to go.
	orphanTimeout = time.Minute
)

// A socket implements engine.Socket. A field is the loop's own unless it is said to be guarded by
// mu.
type socket struct {
	Home
	engine       *Engine
	conn         net.Conn
	sink         engine.Sink
	closed       bool
	paused       bool
	over         bool // the sink knows the end
	keepsWriting bool
	looking      bool // checkPaused comes

	// The reader hands over a piece, or the end, and waits for taken before it goes on. Both are
	// the loop's while arrived is set. The reader has ended when done is closed.
	piece   []byte
	end     error
	arrived atomic.Bool
	taken   chan struct{} // holds a value when the piece was used; closed with the reader
	done    chan struct{}
	halted  bool // the reader begins again with Join

	call    sync.Mutex // held by the writer during a system call, until failure has its result
	mu      sync.Mutex
	out     []byte
	writing bool      // the writer runs, and has what it wrote last
	began   time.Time // when it began to write that, or to run
	flight  int       // of that, bytes
	failure error     // of the writer
	waiting bool      // Sink.Writable is to be called
	ends    bool      // CloseWrite
	gone    bool      // Close
}

// newSocket makes a socket of nc, of which no close waits for the peer, as one that lingers does.
func newSocket(l *netLoop, nc net.Conn) *socket {
	if tcp, ok := nc.(*net.TCPConn); ok {
		_ = tcp.SetLinger(-1)
	}
	return &socket{Home: Home{loop: l.TaskLoop}, engine: l.engine, conn: nc, taken: make(chan struct{}, 1), done: make(chan struct{})}
}

// begin is the first thing on the loop.
func (s *socket) begin(open func(engine.Socket) engine.Sink) {
	s.engine.open.Store(s, nil)
	if s.sink = open(s); !s.closed {
		s.engine.reading.Go(func() { s.read(false) })
	}
}

// read is the reader's goroutine. It begins by waiting if there is a piece.
func (s *socket) read(waits bool) {
	defer close(s.done)
	buf, n := make([]byte, minRead), 0
	for ; ; waits = true {
		if waits {
			if _, goOn := <-s.taken; !goOn {
				return
			}
			if n == len(buf) && n < maxRead {
				buf = make([]byte, 2*n)
			}
		}
		var err error
		if n, err = s.conn.Read(buf); err == io.EOF {
			err = cmp.Or(s.broken(), err)
		}
		s.piece, s.end = buf[:n], err
		s.arrived.Store(true)
		s.Execute(s.deliver)
		if err != nil {
			return
		}
	}
}

// broken returns the error of a connection that has broken before its peer ended the output, or
// nil. The system reports that once: to the reader, to a write, or here.
func (s *socket) broken() error {
	if s.Gone() { // a write under way ends at once
		s.call.Lock()
		defer s.call.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = sockets.ResetOf(s.conn)
	}
	if errors.Is(s.failure, syscall.EPIPE) {
		return nil
	}
	return s.failure
}

// deliver gives the sink what the reader has read. A pause keeps it, but for a reset.
func (s *socket) deliver() {
	if s.closed || s.over || !s.arrived.Load() {
		return
	}
	if len(s.piece) > 0 {
		if s.paused {
			s.checkPaused()
		} else {
			s.readable()
		}
		return
	}
	if !s.paused || s.end != io.EOF {
		s.ended(s.end)
	}
}

// ended tells the sink of the end.
func (s *socket) ended(err error) {
	s.over = true
	if s.sink.Ended(err); !s.keepsWriting {
		s.Close()
	}
}

// checkPaused ends a paused socket that was reset: its reader, which would see that, waits.
func (s *socket) checkPaused() {
	if s.closed || s.over || !s.paused || s.looking {
		return
	}
	if err := s.broken(); err != nil {
		s.ended(err)
		return
	}
	s.looking = true
	time.AfterFunc(pausedLook, func() {
		s.Execute(func() {
			s.looking = false
			s.checkPaused()
		})
	})
}

// readable hands over the piece. An end that came with it is an event of its own.
func (s *socket) readable() {
	p := s.piece
	s.piece = nil
	s.sink.Readable(p)
	switch {
	case s.closed:
	case s.end != nil:
		s.Execute(s.deliver)
	default:
		s.arrived.Store(false)
		s.taken <- struct{}{}
	}
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

// startWriter starts the writer, unless it runs or has nothing to do. s.mu is held.
func (s *socket) startWriter() {
	if !s.writing && (len(s.out) > 0 || s.ends || s.gone) {
		s.writing, s.began = true, time.Now()
		s.engine.writing.Go(s.write)
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
		s.flight, s.began = len(batch), time.Now()
		s.mu.Unlock()
		s.call.Lock()
		_, err := s.conn.Write(batch)
		s.mu.Lock()
		s.flight, s.failure = 0, err
		s.call.Unlock()
		s.reportWrite()
	}
	s.out = batch[:0] // for the next writer
	s.writing = false
	switch c, ok := s.conn.(interface{ CloseWrite() error }); {
	case s.gone:
		_ = s.conn.Close()
	case s.ends && ok:
		_ = c.CloseWrite()
	}
	s.ends = false
}

// reportWrite posts Sink.Writable if it was asked for and half of the room is free. A socket that
// writes on after the peer's end has no reader any more, so a failure is reported here. s.mu is
// held.
func (s *socket) reportWrite() {
	if err := s.failure; err != nil {
		s.Execute(func() {
			if !s.closed && s.over {
				s.keepsWriting = false
				s.ended(err)
			}
		})
	}
	if s.waiting && (len(s.out) <= maxUnsent/2 || s.failure != nil) {
		s.waiting = false
		s.Execute(func() {
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
		s.reportWrite()
	}
	return true
}

// HasInput implements engine.Socket. The reader reads ahead, so what has come is with it, unless
// the process was stopped and it had no time yet.
func (s *socket) HasInput() bool {
	// The second look is for what was on its way from one place to the other.
	return !s.over && (s.hasArrived() || sockets.HasInput(s.conn) || s.hasArrived())
}

// hasArrived reports whether something is with the loop that the sink has not been given.
func (s *socket) hasArrived() bool { return s.arrived.Load() && (len(s.piece) > 0 || s.end != nil) }

// Gone implements engine.Ender.
func (s *socket) Gone() bool { return sockets.GoneOf(s.conn) }

// Unacked implements engine.Socket: the bytes that are queued here, and those in the kernel.
func (s *socket) Unacked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	here, there := len(s.out)+s.flight, sockets.UnackedOf(s.conn)
	if s.ends { // the kernel does not have the end yet
		here++
	}
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
	s.Execute(s.deliver)
}

// CloseWrite implements engine.Socket.
func (s *socket) CloseWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends = true
	s.startWriter()
}

// KeepWriting implements engine.Socket.
func (s *socket) KeepWriting() bool {
	s.keepsWriting = s.end == io.EOF
	return s.keepsWriting
}

// Reset implements engine.Socket.
func (s *socket) Reset() {
	if s.closed {
		return
	}
	s.letGo()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	s.out, s.failure = nil, os.ErrClosed
	if tcp, ok := s.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = s.conn.Close()
}

// Close implements engine.Socket. The writer sends what was written, in the place of a kernel.
func (s *socket) Close() {
	if s.closed {
		return
	}
	s.letGo()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // the reader ends, and the writer may go on
	_ = s.conn.SetWriteDeadline(time.Now().Add(orphanTimeout))
	s.startWriter()
}

// letGo takes s off its loop. The reader ends, unless it waits for the peer.
func (s *socket) letGo() {
	s.closed = true
	s.engine.open.Delete(s)
	close(s.taken)
}

// Detach implements engine.Detachable.
func (s *socket) Detach() (net.Conn, []byte, error) {
	read, err := s.Halt()
	if err != nil {
		return nil, nil, err
	}
	s.letGo()
	return s.conn, read, nil
}

// Halt implements engine.Halter. The reader is woken by a deadline, if it waits for the peer.
func (s *socket) Halt() ([]byte, error) {
	if !s.flushed() {
		return nil, engine.ErrUnflushed
	}
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	close(s.taken)
	<-s.done
	_ = s.conn.SetReadDeadline(time.Time{})
	if s.taken = make(chan struct{}, 1); errors.Is(s.end, os.ErrDeadlineExceeded) {
		s.end = nil
	}
	s.halted = s.end == nil
	return s.piece, nil
}

// flushed waits for the writer, which needs an instant, unless the peer does not read. A writer
// that has waited for the peer before is not waited for: many of them would hold up the loop.
func (s *socket) flushed() bool {
	for {
		s.mu.Lock()
		done, slow := !s.writing, time.Since(s.began) > detachTimeout
		s.mu.Unlock()
		if done || slow {
			return done
		}
		time.Sleep(detachLook)
	}
}

// Leave implements engine.Movable. The goroutines of the socket go on.
func (s *socket) Leave() error {
	s.Home.Leave()
	return nil
}

// Join implements engine.Movable.
func (s *socket) Join(l engine.Loop) error {
	if s.Home.Join(l.(*netLoop).TaskLoop); s.halted {
		waits := len(s.piece) > 0
		s.halted, s.done = false, make(chan struct{})
		s.arrived.Store(waits)
		s.engine.reading.Go(func() { s.read(waits) })
	}
	return nil
}

// Abandon implements engine.Movable.
func (s *socket) Abandon() {
	s.engine.open.Delete(s)
	_ = s.conn.Close()
}

// SyscallConn implements syscall.Conn.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	sc, ok := s.conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sc.SyscallConn()
}
