package handler

import (
	"cmp"
	"errors"
	"net"
	"slices"

	"github.com/loopwheel/loopwheel/loop"
)

// DefaultMaxWaiting is the default of RepliesConfig.MaxWaiting.
const DefaultMaxWaiting = 1024

const zeroReplies = "zero Replies; use NewReplies"

// errLost closes a connection one of whose replies will never be ready.
var errLost = errors.New("handler: a reply was lost, as the code that was to make it panicked")

// RepliesConfig holds the settings of a Replies. The zero value is ready to use.
type RepliesConfig struct {
	// MaxWaiting is how many replies may wait before the connection is paused. 0 means
	// DefaultMaxWaiting, 1,024.
	MaxWaiting int
}

// Replies sends the replies of one connection in the order of its requests, in whatever order they
// become ready: for pipelined protocols without ids, such as Redis, HTTP/1.1 and SMTP.
//
//	requests  A B C D        A is replied to at once; B and C by other loops, and D at once
//	ready     A D C          D and C wait for B
//	sent      A
//	ready     B              now B C D are sent, in one piece
//
// Later reserves the place of a reply, RunOn has it made on another loop, and Write sends a reply
// after those that wait; if none waits, Write costs no more than loop.Conn.Write. When MaxWaiting
// replies wait, or the ready ones exceed half of Server.Limits.MaxOutbound in bytes, the connection
// is not read until half of them are sent. Ready replies also wait while the peer does not take
// earlier output.
//
// A peer that shuts down its output after its requests (nc -N, a pipeline from a file) counts as
// closed, and waiting replies are lost, unless the connection is closed after them:
//
//	c.OnEOF(func() { replies.CloseAfter(io.EOF) })
//
// On a UDP session each reply is one datagram. A reply that has waited, and is then refused with
// loop.ErrDatagramTooLong or loop.ErrAmplification, is dropped with a warning in the log.
//
// While a reply waits, a drain of the server waits for it, as for a job of loop.Offload, and does
// not read the connection; a handover does not move it.
//
// The methods must be called on the connection's loop. Those of the zero Replies panic, except
// Waiting, which returns 0.
type Replies struct {
	c          *loop.Conn
	maxWaiting int
	highWater  int      // bytes of output, or of ready replies, above which replies wait
	mergeMax   int      // bytes up to which replies by Write are merged into one
	waiting    []*Reply // the first is not ready, or the peer does not take it yet
	bytes      int      // of the ready ones
	written    int      // of these, by Write
	paused     bool     // the connection is not read
	blocked    bool     // the peer does not take earlier output, so that ready replies wait
	closes     bool     // CloseAfter was called
	reason     error    // with this
}

// A Reply is the place of one reply among the others: see Replies.Later.
type Reply struct {
	replies *Replies
	data    []byte
	ready   bool
	byWrite bool // more written data may be merged into it
}

// NewReplies returns the Replies of c. It must be called on c's loop. A negative MaxWaiting panics.
func NewReplies(c *loop.Conn, cfg RepliesConfig) *Replies {
	onLoop(c, "handler.NewReplies")
	require(cfg.MaxWaiting >= 0, "RepliesConfig.MaxWaiting is negative")
	r := &Replies{c: c, maxWaiting: cmp.Or(cfg.MaxWaiting, DefaultMaxWaiting), highWater: in.MaxOutbound(c) / 2, mergeMax: 64 << 10}
	if _, udp := c.RemoteAddr().(*net.UDPAddr); udp {
		r.mergeMax = 0 // each is a datagram
	}
	return r
}

// Waiting returns how many replies wait: not ready, not taken by the peer yet, or behind such.
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

// Write sends p after the replies that wait, as it is, by the rules of loop.Conn.Write. p is
// copied. The connection closes with loop.ErrSlowConsumer if Server.Limits.MaxOutbound bytes of
// Write already wait: otherwise output could pile up without limit behind a reply that is never
// ready. Replies by Done or RunOn do not count. Behind a reply of half of MaxOutbound or more, p
// also waits until the peer has taken that.
func (r *Replies) Write(p []byte) error {
	r.check("handler.Replies.Write")
	if len(r.waiting) == 0 && !r.blocked {
		_, err := r.c.Write(p)
		if len(p) >= r.highWater {
			r.hasRoom() // or what is written next would find the limit passed by this alone
		}
		return err
	}
	if err := r.checkWrite(); err != nil {
		return err
	}
	r.count(len(p))
	r.written += len(p)
	if n := len(r.waiting); n > 0 && r.waiting[n-1].byWrite && len(r.waiting[n-1].data)+len(p) <= r.mergeMax {
		r.waiting[n-1].data = append(r.waiting[n-1].data, p...)
		r.pause()
	} else {
		r.add(&Reply{replies: r, data: slices.Clone(p), ready: true, byWrite: true})
	}
	return nil
}

// checkWrite returns why no more may be written, or nil. It runs no hook of the connection, which
// might add replies.
func (r *Replies) checkWrite() error {
	switch {
	case !in.TakesOutput(r.c):
		return loop.ErrClosed
	case r.written >= in.MaxOutbound(r.c):
		r.c.CloseWithError(loop.ErrSlowConsumer)
		return loop.ErrSlowConsumer
	case r.blocked:
		return nil
	default:
		return in.CheckWrite(r.c)
	}
}

// CloseAfter closes the connection, as its CloseWithError does (as Close, if err is nil), once no
// reply waits, at once if none does. A reply that is never Done keeps the connection open until the
// idle timeout, or for good if MaxWaiting replies wait and the peer has sent more: input that waits
// counts as received. Later requests are still delivered, and their replies sent. If no further
// requests are wanted, as after a QUIT, also call the connection's PauseRead.
func (r *Replies) CloseAfter(err error) {
	r.check("handler.Replies.CloseAfter")
	r.closes, r.reason = true, err
	r.flush()
}

// Later reserves the place of a reply that is not ready yet. Those after it wait until it is Done.
func (r *Replies) Later() *Reply {
	r.check("handler.Replies.Later")
	return r.add(&Reply{replies: r})
}

func (r *Replies) add(reply *Reply) *Reply {
	if r.waiting = append(r.waiting, reply); len(r.waiting) == 1 {
		in.OwesReplies(r.c, true)
	}
	r.pause()
	return reply
}

// count notes that ready replies have n bytes more, or fewer.
func (r *Replies) count(n int) {
	r.bytes += n
	in.CountHeld(r.c, n)
}

// pause stops reading if too much waits. Reading resumes when half of that is sent, see flush.
func (r *Replies) pause() {
	if !r.paused && (len(r.waiting) >= r.maxWaiting || r.bytes > r.highWater) {
		r.paused = true
		in.HoldRead(r.c, true)
	}
}

// Done makes the reply ready with data, which is copied, and sends it if all before it are sent. It
// must be called on the connection's loop; from elsewhere, use Tell of the connection's Ref. A
// second Done does nothing, nor does one after the connection has closed.
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
		r.count(len(data))
		r.pause()
	}
	r.flush()
}

// hasRoom reports whether the output is below highWater. If not, flush is called later.
func (r *Replies) hasRoom() bool {
	if !r.blocked {
		r.blocked = !in.WhenPending(r.c, r.highWater, func() { r.blocked = false; r.flush() })
	}
	return !r.blocked
}

// send sends the first reply. It is removed before OnHighWater's hook may add others.
func (r *Replies) send(data []byte) {
	first := r.waiting[0]
	r.count(-len(first.data))
	if first.byWrite {
		r.written -= len(first.data)
	}
	r.waiting[0] = nil
	if r.waiting = r.waiting[1:]; len(r.waiting) == 0 {
		in.OwesReplies(r.c, false)
	}
	_, err := r.c.Write(data)
	warnSeldom(r.c, err, "a reply cannot be sent")
	if len(data) >= r.highWater {
		r.hasRoom() // as in Write
	}
}

// flush sends the replies before the first that is not ready, as far as the peer takes them.
func (r *Replies) flush() {
	for len(r.waiting) > 0 && r.waiting[0].ready && r.hasRoom() {
		r.send(r.waiting[0].data)
	}
	if r.closes && len(r.waiting) == 0 {
		r.c.CloseWithError(r.reason)
		return
	}
	if r.paused && len(r.waiting) <= r.maxWaiting/2 && r.bytes <= r.highWater/2 {
		r.paused = false
		in.HoldRead(r.c, false)
	}
}

// RunOn runs work on l, which may be another loop or the connection's own, and replies with what
// work appends to dst. It reserves the place of the reply and returns at once; calls by one
// connection to one loop run in order. work must not use anything of the connection's loop, and
// bytes of the request must be copied. The errors are loop.Loop.Post's: then no place is reserved,
// and the caller may reply with Write. A panic in work closes the connection.
func (r *Replies) RunOn(l *loop.Loop, work func(dst []byte) []byte) error {
	return r.StartOn(l, func(done func(p []byte)) { done(work(nil)) })
}

// StartOn is RunOn for a reply that is not ready when work returns: work, or a goroutine it has
// started, calls done once. done copies p.
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
