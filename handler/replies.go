package handler

import (
	"cmp"
	"errors"
	"net"
	"slices"

	"github.com/loopwheel/loopwheel/loop"
)

// DefaultMaxWaiting is how many replies may wait if NewReplies is given 0.
const DefaultMaxWaiting = 1024

const zeroReplies = "the zero Replies has no connection: use NewReplies"

// errLost is the reason of a connection that closes because one of its replies will never come.
var errLost = errors.New("handler: a reply was lost, as the code that was to make it panicked")

// Replies sends the replies of one connection in the order of its requests, whatever the order is
// in which they are ready: for protocols that are pipelined and have no ids, as those of Redis,
// HTTP/1.1 and SMTP.
//
//	requests  A B C D        A is replied to at once; B and C by other loops, and D at once
//	ready     A D C          D and C wait for B
//	sent      A
//	ready     B              now B C D are sent, in one piece
//
// Later keeps the place of a reply, RunOn has it made on another loop, and Write replies at once,
// after what waits; without anything that waits, it is loop.Conn.Write and costs no more. When too
// many replies wait, or those that are ready have more bytes than half of
// Server.Limits.MaxOutbound, the connection is not read until half of them are sent. Those that are
// ready wait, too, while the peer does not take what was sent before.
//
// A peer that ends its output after its requests (nc -N, a pipeline from a file) counts as closed,
// so that replies which wait then are lost, unless they are waited for:
//
//	c.OnEOF(func() { replies.CloseAfter(io.EOF) })
//
// While a reply waits, a drain of the server waits for it as for a job of loop.Offload, and does
// not read the connection; and it does not move in a handover.
//
// The methods must be called on the connection's loop. Those of the zero Replies panic, but for
// Waiting, which is 0.
type Replies struct {
	c        *loop.Conn
	max      int
	half     int      // of MaxOutbound
	together int      // bytes of what is written that go as one
	waiting  []*Reply // the first is not ready, or the peer does not take it yet
	bytes    int      // that those have which are ready
	written  int      // of these, by Write
	held     bool     // it is not read
	stuck    bool     // so much of what was sent waits for the peer that what is ready does, too
	over     bool     // CloseAfter was called
	reason   error    // what it was given
}

// A Reply is the place of one reply among the others: see Replies.Later.
type Reply struct {
	replies *Replies
	data    []byte
	ready   bool
	open    bool // more may be put after it: it was never waited for
}

// NewReplies returns the replies of c. max is how many may wait before c is not read for a while, 0
// means DefaultMaxWaiting. A negative max panics.
func NewReplies(c *loop.Conn, max int) *Replies {
	require(max >= 0, "NewReplies with a negative max")
	r := &Replies{c: c, max: cmp.Or(max, DefaultMaxWaiting), half: in.MaxOutbound(c) / 2, together: 64 << 10}
	if _, udp := c.RemoteAddr().(*net.UDPAddr); udp {
		r.together = 0 // each is a datagram
	}
	return r
}

// Waiting returns how many replies are kept: not ready, not taken by the peer yet, or after such.
func (r *Replies) Waiting() int {
	if r.c != nil {
		onLoop(r.c, "handler.Replies.Waiting")
	}
	return len(r.waiting)
}

// check panics if method must not be called.
func (r *Replies) check(method string) {
	require(r.c != nil, zeroReplies)
	onLoop(r.c, method)
}

// Write replies at once: p is sent as it is, by the rules of loop.Conn.Write, after the replies
// that wait. p is copied. By those rules, too, the connection closes with loop.ErrSlowConsumer if
// Server.Limits.MaxOutbound bytes of Write wait after them already: what nobody has asked for is
// not held back, and the reply before it may never come. Replies by Done or RunOn do not count.
// Behind one reply of half of MaxOutbound or more, what is written waits, too, while the peer takes
// that.
func (r *Replies) Write(p []byte) error {
	r.check("handler.Replies.Write")
	if len(r.waiting) == 0 && !r.stuck {
		_, err := r.c.Write(p)
		if len(p) >= r.half {
			r.hasRoom() // or what is written next would find the limit passed by this alone
		}
		return err
	}
	if err := r.checkWrite(); err != nil {
		return err
	}
	r.bytes += len(p)
	r.written += len(p)
	if n := len(r.waiting); n > 0 && r.waiting[n-1].open && len(r.waiting[n-1].data)+len(p) <= r.together {
		r.waiting[n-1].data = append(r.waiting[n-1].data, p...)
		r.hold()
	} else {
		r.add(&Reply{replies: r, data: slices.Clone(p), ready: true, open: true})
	}
	return nil
}

// checkWrite returns why nothing more is taken after what waits, if so. It leaves what waits as it
// is: no hook of the connection, which may give replies, runs within it.
func (r *Replies) checkWrite() error {
	switch {
	case !in.TakesOutput(r.c):
		return loop.ErrClosed
	case r.written >= in.MaxOutbound(r.c):
		r.c.CloseWithError(loop.ErrSlowConsumer)
		return loop.ErrSlowConsumer
	case r.stuck:
		return nil
	default:
		return in.CheckWrite(r.c)
	}
}

// CloseAfter closes the connection, as its CloseWithError does, when no reply waits any more: at
// once if none does. err nil is Close. A reply that is never Done keeps the connection open until
// the idle timeout; for good, if more requests wait than may be under way, as those count as
// received. Requests after this one are still delivered, and their replies waited for. Where it is
// the last, as after a QUIT, call PauseRead of the connection, too.
func (r *Replies) CloseAfter(err error) {
	r.check("handler.Replies.CloseAfter")
	r.over, r.reason = true, err
	r.flush()
}

// Later keeps the place of a reply that is not ready yet. All after it wait until it is Done.
func (r *Replies) Later() *Reply {
	r.check("handler.Replies.Later")
	return r.add(&Reply{replies: r})
}

func (r *Replies) add(reply *Reply) *Reply {
	if r.waiting = append(r.waiting, reply); len(r.waiting) == 1 {
		in.OwesReplies(r.c, true)
	}
	r.hold()
	return reply
}

// hold stops reading if too much waits. Reading goes on when half of that has gone, see flush.
func (r *Replies) hold() {
	if !r.held && (len(r.waiting) >= r.max || r.bytes > r.half) {
		r.held = true
		in.HoldRead(r.c, true)
	}
}

// Done replies with data, which is copied, and sends it if all before it are. It must be called on
// the connection's loop; elsewhere, Tell the connection's Ref to. A second Done does nothing, and
// neither does one after the connection has closed.
func (p *Reply) Done(data []byte) {
	onLoop(p.replies.c, "handler.Reply.Done")
	if p.ready {
		return
	}
	p.ready = true
	r := p.replies
	if len(r.waiting) > 0 && r.waiting[0] == p && r.hasRoom() {
		r.send(data)
	} else {
		p.data = slices.Clone(data)
		r.bytes += len(data)
		r.hold()
	}
	r.flush()
}

// hasRoom reports whether more may be sent within the limit. If not, flush is called later.
func (r *Replies) hasRoom() bool {
	if !r.stuck {
		r.stuck = !in.WhenPending(r.c, r.half, func() { r.stuck = false; r.flush() })
	}
	return !r.stuck
}

// send sends the first reply, which waits no more when OnHighWater's hook gives others in turn.
func (r *Replies) send(data []byte) {
	first := r.waiting[0]
	r.bytes -= len(first.data)
	if first.open {
		r.written -= len(first.data)
	}
	r.waiting[0] = nil
	if r.waiting = r.waiting[1:]; len(r.waiting) == 0 {
		in.OwesReplies(r.c, false)
	}
	_, _ = r.c.Write(data)
	if len(data) >= r.half {
		r.hasRoom() // as in Write
	}
}

// flush sends what is ready up to the first that is not, as far as the peer takes it.
func (r *Replies) flush() {
	for len(r.waiting) > 0 && r.waiting[0].ready && r.hasRoom() {
		r.send(r.waiting[0].data)
	}
	if r.over && len(r.waiting) == 0 {
		r.c.CloseWithError(r.reason)
		return
	}
	if r.held && len(r.waiting) <= r.max/2 && r.bytes <= r.half/2 {
		r.held = false
		in.HoldRead(r.c, false)
	}
}

// RunOn has work run on l, which may be another loop or the connection's own, and replies with what
// it appends to dst. It keeps the place of the reply, and returns at once; the order of what one
// connection has run on one loop is kept there, too. Nothing that work uses may belong to the
// connection's loop; bytes of the request must be copied. The errors are loop.Loop.Post's: then no
// place is kept, and the caller may reply with Write. A panic in work closes the connection.
func (r *Replies) RunOn(l *loop.Loop, work func(dst []byte) []byte) error {
	return r.StartOn(l, func(done func(p []byte)) { done(work(nil)) })
}

// StartOn is RunOn for a reply that is not ready when work returns: work, or what it has started
// on whatever goroutine, calls done once. done copies p.
func (r *Replies) StartOn(l *loop.Loop, work func(done func(p []byte))) error {
	r.check("handler.Replies.StartOn")
	reply, ref := &Reply{replies: r}, r.c.Ref()
	done := func(p []byte) {
		p = slices.Clone(p)
		ref.Tell(func(*loop.Conn) { reply.Done(p) })
	}
	err := l.Post(func() {
		if in.Try(l, func() { work(done) }) != nil {
			ref.Tell(func(c *loop.Conn) { c.CloseWithError(errLost) })
		}
	})
	if err == nil {
		r.add(reply)
	}
	return err
}
