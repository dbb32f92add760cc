package handler

import (
	"errors"
	"net"
	"slices"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
)

// DefaultMaxWaiting is how many answers may wait if NewAnswers is given 0.
const DefaultMaxWaiting = 1024

// maxTogether is how many bytes of answers that are written behind one that waits are one answer.
const maxTogether = 64 << 10

// errLost is the reason of a connection that closes because one of its answers will never come.
var errLost = errors.New("handler: an answer was lost, as the code that was asked panicked")

// Answers sends the answers of one connection in the order of its requests, whatever the order is
// in which they are ready: for protocols whose clients tell by the order which answer is whose, as
// those of Redis, HTTP/1.1 and SMTP do when they pipeline.
//
//	requests  A B C D        A is answered at once; B and C by other loops, and D at once
//	ready     A D C          D and C wait for B
//	sent      A
//	ready     B              now B C D are sent, in one piece
//
// Later keeps the place of an answer, Ask has it made on another loop, and Write answers at once,
// behind what waits. Without anything that waits, Write is loop.Conn.Write and costs no more. When
// too many answers wait, or those that are ready have more bytes than half of Server.MaxOutbound,
// the connection is not read until half of them are sent. Those that are ready wait, too, while the
// peer does not take what was sent before.
//
// A peer that ends its output behind its requests (nc -N, a pipeline from a file) counts as closed, so
// that answers which wait then are lost, unless they are waited for:
//
//	c.OnEOF(func() { answers.CloseAfter(io.EOF) })
//
// The methods must be called on the connection's loop. Those of the zero Answers, which has no
// connection, panic, but for Waiting, which is 0.
type Answers struct {
	c        *loop.Conn
	max      int
	half     int // of MaxOutbound
	together int // bytes of what is written that go as one
	again    *retells
	waiting  []*Answer // the first is not ready, or the peer does not take it yet
	bytes    int       // that those have which are ready
	written  int       // of these, by Write
	held     bool      // it is not read
	stuck    bool      // so much of what was sent waits for the peer that what is ready does, too
	over     bool      // CloseAfter was called
	reason   error     // what it was given
}

// An Answer is the place of one answer among the others: see Answers.Later.
type Answer struct {
	answers *Answers
	data    []byte
	ready   bool
	open    bool // more may be put behind it: it was never waited for
}

// NewAnswers returns the answers of c. max is how many may wait before c is not read for a while, 0
// means DefaultMaxWaiting. A negative max panics.
func NewAnswers(c *loop.Conn, max int) *Answers {
	if max < 0 {
		panic("handler: NewAnswers with a negative max")
	}
	if max == 0 {
		max = DefaultMaxWaiting
	}
	a := &Answers{c: c, max: max, half: c.MaxOutbound() / 2, together: maxTogether, again: &locals.Get(c.Loop()).retells}
	if _, udp := c.RemoteAddr().(*net.UDPAddr); udp {
		a.together = 0 // each is a datagram
	}
	return a
}

func (a *Answers) mustBeMade() {
	if a.c == nil {
		panic("handler: the zero Answers has no connection: use NewAnswers")
	}
}

// Waiting returns how many answers are kept: those that are not ready or that the peer does not take
// yet, and those behind them.
func (a *Answers) Waiting() int { return len(a.waiting) }

// Write answers at once: p is sent as it is, by the rules of loop.Conn.Write, behind the answers
// that wait. p is copied. By those rules, too, the connection closes with loop.ErrSlowConsumer if
// Server.MaxOutbound bytes of Write wait behind them already: what nobody has asked for is not held
// back, and the answer before it may never come. Answers by Done or Ask do not count. Behind one
// answer that has half of MaxOutbound or more, however it was given, what is written waits, too,
// while the peer takes that.
func (a *Answers) Write(p []byte) error {
	a.mustBeMade()
	if len(a.waiting) == 0 && !a.stuck {
		_, err := a.c.Write(p)
		if len(p) >= a.half {
			a.hasRoom() // or what is written next would find the limit passed by this alone
		}
		return err
	}
	if err := a.room(); err != nil {
		return err
	}
	if last := a.last(); last != nil && last.open && len(last.data)+len(p) <= a.together {
		last.data = append(last.data, p...)
	} else {
		a.waiting = append(a.waiting, &Answer{answers: a, data: slices.Clone(p), ready: true, open: true})
	}
	a.bytes += len(p)
	a.written += len(p)
	a.hold()
	return nil
}

// last returns the one behind which the next would be, nil if none waits.
func (a *Answers) last() *Answer {
	if len(a.waiting) == 0 {
		return nil
	}
	return a.waiting[len(a.waiting)-1]
}

// room returns why nothing more is taken behind what waits, if so. It leaves what waits as it is:
// no hook of the connection, which may give answers, runs within it.
func (a *Answers) room() error {
	err := inside.Mute(a.c)
	if err == nil && !a.stuck {
		err = inside.MayWrite(a.c)
	}
	if err != nil {
		return err
	}
	if a.written < a.c.MaxOutbound() {
		return nil
	}
	a.c.CloseWithError(loop.ErrSlowConsumer)
	return loop.ErrSlowConsumer
}

// CloseAfter closes the connection, as its CloseWithError does, when no answer waits any more: at
// once if none does. One that is never Done keeps it open, until the idle timeout; for good, if more
// requests wait than may be under way, as those count as received. err nil is Close.
//
// Requests behind this one are still delivered, and their answers waited for. Where it is the last,
// as behind a QUIT or a "Connection: close", call PauseRead of the connection, too.
func (a *Answers) CloseAfter(err error) {
	a.mustBeMade()
	a.over, a.reason = true, err
	a.flush()
}

// Later keeps the place of an answer that is not ready yet. Each one must be Done in the end, or
// all behind it wait until the connection closes.
func (a *Answers) Later() *Answer {
	a.mustBeMade()
	s := &Answer{answers: a}
	a.add(s)
	return s
}

func (a *Answers) add(s *Answer) {
	a.waiting = append(a.waiting, s)
	a.hold()
}

// hold stops reading if too much waits: whoever pipelines behind an answer that takes long must not
// have the others pile up here.
func (a *Answers) hold() {
	if !a.held && (len(a.waiting) >= a.max || a.bytes > a.half) {
		a.held = true
		inside.Hold(a.c, true)
	}
}

// letOn reads again when half of that has gone.
func (a *Answers) letOn() {
	if a.held && len(a.waiting) <= a.max/2 && a.bytes <= a.half/2 {
		a.held = false
		inside.Hold(a.c, false)
	}
}

// Done answers with p, which is copied, and sends it if all before it are. It must be called on the
// connection's loop; elsewhere, Tell the connection's Ref to. A second Done does nothing, and
// neither does one after the connection has closed.
func (s *Answer) Done(p []byte) {
	if s.ready {
		return
	}
	s.ready = true
	a := s.answers
	if len(a.waiting) > 0 && a.waiting[0] == s && a.hasRoom() {
		a.send(p)
	} else {
		s.data = slices.Clone(p)
		a.bytes += len(p)
		a.hold()
	}
	a.flush()
}

// hasRoom reports whether more may be sent. If so much waits that it would be beyond the limit, and
// cost the connection, flush is called later: that limit is for what a peer has not asked for.
func (a *Answers) hasRoom() bool {
	if !a.stuck {
		a.stuck = !inside.Room(a.c, func() { a.stuck = false; a.flush() })
	}
	return !a.stuck
}

// send sends the first answer. It is none of those that wait before: OnHighWater's hook, which may
// run within Write, may give answers, too.
func (a *Answers) send(p []byte) {
	first := a.waiting[0]
	a.bytes -= len(first.data)
	if first.open {
		a.written -= len(first.data)
	}
	a.waiting[0] = nil
	a.waiting = a.waiting[1:]
	_, _ = a.c.Write(p)
	if len(p) >= a.half {
		a.hasRoom() // as in Write
	}
}

// flush sends what is ready up to the first that is not, as far as the peer takes it.
func (a *Answers) flush() {
	for len(a.waiting) > 0 && a.waiting[0].ready && a.hasRoom() {
		a.send(a.waiting[0].data)
	}
	if a.over && len(a.waiting) == 0 {
		a.c.CloseWithError(a.reason)
		return
	}
	a.letOn()
}

// Ask has work run on l, which may be another loop or the connection's own, and answers with what
// it appends to dst. It keeps the place of the answer, and returns at once: the order of what one
// connection asks one loop is kept there, too. Nothing that work uses may belong to the
// connection's loop; bytes of the request must be copied.
//
// The errors are loop.Loop.Post's; then no place is kept, and the caller may answer with Write. A
// panic in work closes the connection, as its answer will never come.
func (a *Answers) Ask(l *loop.Loop, work func(dst []byte) []byte) error {
	return a.AskLater(l, func(done func(p []byte)) { done(work(nil)) })
}

// AskLater is Ask for an answer that is not ready when work returns: work, or what it has started
// on whatever goroutine, calls done once. done copies p.
func (a *Answers) AskLater(l *loop.Loop, work func(done func(p []byte))) error {
	a.mustBeMade()
	s, ref, again := &Answer{answers: a}, a.c.Ref(), a.again
	done := func(p []byte) {
		p = slices.Clone(p)
		again.tell(ref, func(*loop.Conn) { s.Done(p) })
	}
	err := l.Post(func() {
		if l.Try(func() { work(done) }) != nil {
			again.tell(ref, func(c *loop.Conn) { c.CloseWithError(errLost) })
		}
	})
	if err == nil {
		a.add(s)
	}
	return err
}
