package looptest

import (
	"errors"
	"io"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/netengine"
)

const (
	unlimited  = math.MaxInt // as an argument of setRoom: the peer reads
	sendBuffer = 208 << 10   // what a socket takes before its peer has read, as Linux has it by default
	readBuffer = 256 << 10   // how much the engine reads at once, as the real one
)

// socket implements engine.Socket, with the kernel's part: what came in and is not read, what went
// out, and how much the peer still takes. The loop calls the methods of the interface, the test the
// others.
type socket struct {
	netengine.Home
	memory *memory
	sink   engine.Sink // used on the loop only

	mu       sync.Mutex
	in       []byte
	out      []byte
	unsent   int       // bytes that went out and that the peer's system has not acknowledged, the end counting as one
	unread   int       // bytes that it has acknowledged, and that the peer has not read
	room     int       // how many more go out
	readAt   time.Time // when the peer has read last, unless it is blocked
	blocked  bool      // it does not read
	reading  bool      // it is about to read
	readSoon func()    // the method refill, made once
	writes   int
	end      error // what the server reads after in
	ended    bool  // it has read it
	opened   bool
	half     bool // the peer closed one direction only
	refuses  bool // it had closed both, and something was sent after that, or it reset the connection after half
	lingers  bool
	waiting  bool // for room
	paused   bool // the server does not want to read
	shut     bool // the server has ended its output
	closed   bool // by the server
	hard     bool
	over     bool  // OnClose has been called
	reason   error // with that
	signaled bool  // a look at in is on its way

	told chan struct{} // holds a value after something has happened for a peer that waits for that; or nil
}

// newSocket returns a socket whose peer reads.
func newSocket(m *memory) *socket {
	s := &socket{memory: m, room: sendBuffer}
	s.readSoon = s.refill
	return s
}

// finished notes that OnClose was called with err.
func (s *socket) finished(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.reason = true, err
}

func (s *socket) finish() (over bool, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over, s.reason
}

func (s *socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		panic("looptest: the server wrote to a socket that it had closed")
	}
	if s.shut || s.refuses {
		return 0, syscall.EPIPE
	}
	s.writes++
	if s.end != nil && !s.half { // the peer has closed: its system takes no more, which ours hears when it has sent something
		s.refuses = true
		s.unsent += len(p)
		return len(p), nil
	}
	defer s.tell()
	if now := time.Now(); !s.blocked && now.After(s.readAt) { // a peer that reads does so while callbacks run, too
		s.room, s.readAt = sendBuffer, now
	}
	n := min(len(p), s.room)
	s.out = append(s.out, p[:n]...)
	s.room -= n
	if s.blocked {
		s.unsent += n
	}
	if !s.blocked && !s.reading && n > 0 {
		s.reading = true
		s.Soon(s.readSoon)
	}
	return n, nil
}

// refill is the peer reading all that waits for it, after the turn of the loop that wrote it.
func (s *socket) refill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading = false
	if !s.blocked {
		s.room, s.readAt = sendBuffer, time.Now()
		s.offer()
	}
}

func (s *socket) NotifyWritable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory.blind.Load() {
		return false
	}
	s.waiting = true
	s.offer()
	return true
}

// offer tells the server that there is room again. s.mu is held.
func (s *socket) offer() {
	if s.waiting && s.room > 0 && !s.closed {
		s.waiting = false
		s.Execute(s.writable)
	}
}

func (s *socket) writable() {
	if !s.gone() {
		s.sink.Writable()
	}
}

func (s *socket) HasInput() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.in) > 0 || s.end != nil && !s.ended
}

func (s *socket) Unacked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsent
}

func (s *socket) KeepWriting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lingers = true
	return true
}

func (s *socket) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	return nil
}

func (s *socket) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	s.signal()
}

func (s *socket) CloseWrite() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shut && s.blocked && s.unsent > 0 {
		s.unsent++ // behind unread output; otherwise it is acknowledged at once
	}
	s.shut = true
	s.tell()
}

// Gone implements engine.Ender: a system whose program has closed altogether resets the connection
// when more comes.
func (s *socket) Gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end != nil && !s.half
}

// PeerEnded reports whether the peer has ended its output, which Linux tells while input is left.
func (s *socket) PeerEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end != nil
}

func (s *socket) Close() { s.close(false) }
func (s *socket) Reset() { s.close(true) }

func (s *socket) close(hard bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.hard = true, hard
	s.memory.open.Delete(s)
	s.tell()
}

// notify makes read wait for output.
func (s *socket) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = make(chan struct{}, 1)
}

// tell wakes a peer that waits for output. s.mu is held.
func (s *socket) tell() {
	select {
	case s.told <- struct{}{}:
	default:
	}
}

// Leave implements engine.Movable.
func (s *socket) Leave() error {
	s.Home.Leave()
	return nil
}

// Join implements engine.Movable.
func (s *socket) Join(l engine.Loop) error {
	s.Home.Join(l.(*memLoop).TaskLoop)
	return nil
}

// Abandon implements engine.Movable.
func (s *socket) Abandon() { s.close(true) }

// read takes output as read(2) would, and waits for it.
func (s *socket) read(p []byte) (int, error) {
	for {
		s.mu.Lock()
		n := copy(p, s.out)
		s.out = s.out[n:]
		over := s.shut || s.closed
		s.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if over {
			return 0, io.EOF
		}
		<-s.told
	}
}

// open begins to deliver. It runs on the loop.
func (s *socket) open(sink engine.Sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sink = sink; !s.closed {
		s.opened = true
		s.memory.open.Store(s, nil)
		s.signal()
	}
}

func (s *socket) refused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.tell()
}

// signal makes the loop look at the input, if there is some. s.mu is held.
func (s *socket) signal() {
	if s.opened && !s.signaled && !s.closed && (s.reset() || !s.paused && (len(s.in) > 0 || s.end != nil && !s.ended)) {
		s.signaled = true
		s.Execute(s.deliver)
	}
}

// reset reports whether the peer has reset the connection and the server does not know yet: a pause
// does not hide that. s.mu is held.
func (s *socket) reset() bool { return s.end != nil && !s.ended && !errors.Is(s.end, io.EOF) }

// deliver is one read event: a buffer of input, or the end. It runs on the loop.
func (s *socket) deliver() {
	s.mu.Lock()
	s.signaled = false
	reset := s.reset()
	if s.closed || s.paused && !reset {
		s.mu.Unlock()
		return
	}
	if piece := s.in[:min(len(s.in), readBuffer)]; len(piece) > 0 && !reset {
		s.in = s.in[len(piece):]
		s.mu.Unlock()
		s.sink.Readable(piece)
		s.mu.Lock()
		s.signal()
		s.mu.Unlock()
		return
	}
	s.ended = true
	s.mu.Unlock()
	s.sink.Ended(s.end)
	s.mu.Lock()
	if s.closed = s.closed || !s.lingers; s.closed {
		s.memory.open.Delete(s)
	}
	s.tell()
	s.mu.Unlock()
}

func (s *socket) feed(b []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.end != nil {
		return false
	}
	s.in = append(s.in[:len(s.in):len(s.in)], b...)
	s.signal()
	return true
}

// hangUp ends the peer's output, and both directions unless half. A peer that closes with input that
// it has not read resets the connection, as on Linux.
func (s *socket) hangUp(err error, half bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !half && s.unsent+s.unread > 0 {
		err = syscall.ECONNRESET
	}
	switch {
	case s.end == nil:
		s.end, s.half = err, half
		s.signal()
	case s.half && !half: // the server reads the end as before, and learns of this when it writes
		s.half = false
		if s.refuses = !errors.Is(err, io.EOF); s.refuses {
			s.room = max(s.room, 1)
			s.offer()
		}
	}
}

func (s *socket) taken() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.out
	s.out = nil
	return b
}

func (s *socket) setRoom(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = n != unlimited
	if s.room = n; !s.blocked {
		s.room, s.unsent, s.unread, s.readAt = sendBuffer, 0, 0, time.Now()
	}
	s.offer()
}

// take is the peer reading n bytes of those that wait for it, without the socket taking more. What
// it reads is acknowledged, if it was not before.
func (s *socket) take(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := min(n, s.unread)
	s.unread -= before
	s.acknowledge(n - before)
}

// ack is the peer's system taking n bytes that the peer does not read.
func (s *socket) ack(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread += s.acknowledge(n)
}

// acknowledge acknowledges up to n bytes, and the end behind the last of them. s.mu is held.
func (s *socket) acknowledge(n int) int {
	n = min(n, s.unsent)
	if s.unsent -= n; s.shut && s.unsent <= 1 {
		s.unsent = 0
	}
	return n
}

func (s *socket) countWrites() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *socket) closedBy() (closed, hard bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || s.shut, s.hard
}

// gone reports whether the server has let go of the socket.
func (s *socket) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
