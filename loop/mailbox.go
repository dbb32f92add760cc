package loop

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop/internal/mailbox"
)

// This file is how other goroutines reach a loop: Post, and Ref.Tell, by the loop's mailbox.

// A task is a function for the loop: f for the loop itself, or told for a connection while that is
// open, or f for a connection, also when that has closed.
type task struct {
	f    func()
	told func(*Conn)
	c    *Conn
}

// Post calls f on the loop, after earlier Tells and Posts to it, and never inline. Any goroutine
// may call it, including the loop's own. Long work can be split into pieces each of which posts the
// next: a piece runs in the next turn, after timers and sockets have had their share. nil means
// that f will run: a loop empties its mailbox before it ends. ErrServerClosed means that the loop
// has ended. A panic in f is logged and counted. Post panics if f is nil.
//
// Post never fails because of a full mailbox. See Server.Limits.MaxMailbox for how senders are
// slowed down.
func (l *Loop) Post(f func()) error {
	needFunc("Loop.Post", f != nil)
	_, err := l.post(task{f: f})
	return err
}

// TryPost is Post, but returns ErrMailboxFull if Server.Limits.MaxMailbox functions are already
// queued, for callers that would rather drop f.
func (l *Loop) TryPost(f func()) error {
	needFunc("Loop.TryPost", f != nil)
	return l.tryPost(task{f: f})
}

func (l *Loop) post(t task) (number uint64, err error) {
	number, waiting, err := l.mail.Put(t)
	if err != nil {
		return 0, err
	}
	l.posted(number, waiting)
	return number, nil
}

// posted wakes the loop for a task that was put into its mailbox.
func (l *Loop) posted(number uint64, waiting int) {
	l.wake()
	if waiting > l.server.Limits.MaxMailbox {
		l.crowded(number, waiting)
	}
}

// post posts a task of c to the loop where it is. Unless bounded, no mailbox is too full.
func (c *Conn) post(t task, bounded bool) error {
	l := c.home()
	number, waiting, err := l.mail.PutFor((*unsafe.Pointer)(unsafe.Pointer(&c.loop)), unsafe.Pointer(l), t, bounded)
	if err != nil {
		if err == mailbox.ErrMoved {
			return c.post(t, bounded)
		}
		return err
	}
	if l.wake(); waiting > l.server.Limits.MaxMailbox { // posted, without its call
		l.crowded(number, waiting)
	}
	return nil
}

func (l *Loop) tryPost(t task) error {
	_, err := l.mail.TryPut(t)
	if err == nil {
		l.wake()
	}
	return err
}

// call runs f on l, and waits for that. It reports false if the loop has ended without it.
func (l *Loop) call(f func()) bool { return l.callWithin(math.MaxInt64, f) }

// callWithin is call for a loop that may be blocked: where l has not begun with f when it has been
// in one turn, or this has waited, for that long, f does not run.
func (l *Loop) callWithin(most time.Duration, f func()) bool {
	var taken atomic.Bool // by the loop, or back
	done := make(chan struct{})
	if l.Post(func() {
		if !taken.Swap(true) {
			defer close(done)
			f()
		}
	}) != nil {
		return false
	}
	late := time.NewTimer(most - l.stuckFor(time.Since(l.server.base)))
	defer late.Stop()
	select {
	case <-done:
		return true
	case <-l.ended:
	case <-late.C:
	}
	if !taken.Swap(true) {
		return false
	}
	<-done
	return true
}

// postPieces is inside.ForHandler.PostPieces. To a callback of a connection no mailbox is too full:
// the connection is held back, as by Post.
func (l *Loop) postPieces(f func() (more bool)) (number uint64, err error) {
	t := task{f: func() { l.unfinished = f() }}
	if number, err = l.mail.TryPut(t); err == nil {
		l.wake()
	} else if p := runningLoop(); err == ErrMailboxFull && p != nil && p.running.conn != nil {
		var waiting int
		if number, waiting, err = l.mail.Put(t); err == nil {
			l.posted(number, waiting)
		}
	}
	return number, err
}

// A Ref is the address of a connection: other goroutines hold it instead of a Conn. Refs are
// comparable; two are equal if they mean the same connection. The zero Ref means none. A Ref keeps
// a few hundred bytes of a closed Conn in memory, but neither its handler nor its buffers.
type Ref struct{ c *Conn }

// Tell calls f with the connection on the connection's loop, after earlier Tells and Posts to that
// loop, and never inline. Any goroutine may call it, including a callback of the same connection.
//
// nil means that f was queued: it runs unless the connection closes first. ErrClosed means that the
// connection is closed, or that r is the zero Ref. ErrServerClosed is as for Loop.Post. A panic in
// f closes the connection. Tell panics if f is nil.
//
// Tell never fails because of a full mailbox. A connection whose callbacks fill a mailbox is not
// read until no more than half of Server.Limits.MaxMailbox functions are queued. Other goroutines
// that may be faster than the loop should use TellWait.
func (r Ref) Tell(f func(c *Conn)) error {
	needFunc("Ref.Tell", f != nil)
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	return r.c.post(task{told: f, c: r.c}, false)
}

// Send sends a copy of msg to the peer, as one message. Its errors are Tell's. An error of
// Conn.Send closes the connection with it, except codec.ErrClosed: the codec is closing already.
// Any goroutine may call it.
func (r Ref) Send(msg []byte) error {
	msg = bytes.Clone(msg)
	return r.Tell(func(c *Conn) {
		if err := c.Send(msg); err != nil && !errors.Is(err, codec.ErrClosed) {
			c.CloseWithError(err)
		}
	})
}

// Close closes the connection, as Conn.Close does. It is queued like a Tell: on the connection's
// loop, too, that is still open when Close returns. Any goroutine may call it, also when the
// connection has closed.
func (r Ref) Close() { r.CloseWithError(nil) }

// CloseWithError is Close with a reason for OnClose, like Conn.CloseWithError. It is queued like a
// Tell.
func (r Ref) CloseWithError(err error) {
	_ = r.Tell(func(c *Conn) { c.CloseWithError(err) }) // an error: it is closed, or its loop has ended
}

// TryTell is Tell, but returns ErrMailboxFull if Server.Limits.MaxMailbox functions are already
// queued for the loop, for callers that would rather drop f.
func (r Ref) TryTell(f func(c *Conn)) error {
	needFunc("Ref.TryTell", f != nil)
	if r.c == nil || r.c.isClosing() {
		return ErrClosed
	}
	return r.c.post(task{told: f, c: r.c}, true)
}

// TellWait is Tell for a goroutine that is not a loop's, such as one that reads a file or a queue:
// it blocks while Server.Limits.MaxMailbox functions are queued for the loop. It returns ctx's
// error if f was not queued before ctx was done. On a loop it panics instead of blocking, because
// the loop might wait for itself.
func (r Ref) TellWait(ctx context.Context, f func(c *Conn)) error {
	for {
		err := r.TryTell(f)
		if !errors.Is(err, ErrMailboxFull) {
			return err
		}
		if runningLoop() != nil {
			panic("loop: Ref.TellWait on a loop, which must not wait: use Tell or TryTell")
		}
		select {
		case <-r.c.home().mailboxRoom():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ID returns Conn.ID, or 0 for the zero Ref. Any goroutine may call it.
func (r Ref) ID() uint64 {
	if r.c == nil {
		return 0
	}
	return r.c.id
}
