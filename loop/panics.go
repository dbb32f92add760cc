package loop

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// This file is what becomes of panics of user code.

// newPanicError is called in the function that recovered v.
func newPanicError(v any) *PanicError { return &PanicError{Value: v, Stack: debug.Stack()} }

// caught is called in a deferred function that guards user code, or what is around it, when that
// has not come to its end, with what recover returned there: nil means that a callback called
// runtime.Goexit. It returns a panic, logged and counted, as a *PanicError. What is guarded may
// return wherever it likes: only the guard's own next step says that it has.
func (l *Loop) caught(v any) error {
	if v == nil {
		l.exited()
		return nil
	}
	return l.panicked(v)
}

// noteRunning notes whose code is about to run, nil for the loop's own, and of what kind it is.
func (l *Loop) noteRunning(c *Conn, w meter.Work) {
	var id uint64
	if l.running.conn = c; c != nil {
		id = c.id
	}
	l.meter.Works(w, id)
}

// guard runs f, and returns its panic.
func (l *Loop) guard(f func()) (err error) {
	returned := false
	defer func() {
		if !returned {
			err = l.caught(recover())
		}
	}()
	f()
	returned = true
	return nil
}

// guardCurrent is guard for the code of l.running.conn, which a panic closes.
func (l *Loop) guardCurrent(f func()) {
	if err := l.guard(f); err != nil && l.running.conn != nil {
		l.running.conn.beginClose(err)
	}
}

// answers reports whether code of kind w answers a message.
func answers(w meter.Work) bool { return w == meter.Message || w == meter.Result }

// endAmidAnswer closes c because code that answers a message has panicked. It may have sent a part
// of the answer, so the peer reads a reset.
func (c *Conn) endAmidAnswer(err error) {
	if !c.isClosing() && c.isTCP() {
		c.more().ending.endWithReset = true
	}
	c.beginClose(err)
}

// callHook runs f as c's code.
func (c *Conn) callHook(f func()) { c.callHookAs(meter.Hook, f) }

// callHookAs is callHook for a kind of hooks that has a name.
func (c *Conn) callHookAs(w meter.Work, f func()) {
	if f == nil {
		return
	}
	l := c.loop
	caller := l.running.conn // what runs next may be another's, or the loop's own
	work, conn := l.meter.Doing()
	l.noteRunning(c, w)
	defer func() {
		l.running.conn = caller
		l.meter.Works(work, conn)
	}()
	switch err := l.guard(f); {
	case err == nil:
	case answers(w), caller == c && answers(work):
		c.endAmidAnswer(err)
	default:
		c.beginClose(err)
	}
}

// exited is called while the goroutine of the loop ends, because a callback called runtime.Goexit,
// as t.Fatal does. All that is left is to end the loop in order, and the server with it.
func (l *Loop) exited() {
	select {
	case <-l.ended: // an inner guard has seen it
		return
	default:
	}
	if c := l.running.conn; c != nil && c.id == l.running.decoding {
		c.out.todo &^= settleDue // its turn does not end in Conn.received
	}
	l.running.decoding, l.nesting = 0, 0
	l.server.Logger.Error().Int("loop", l.index).Bytes("stack", debug.Stack()).Msg("a callback ended the goroutine of its loop")
	l.engine.Lost()
	host{l}.LoopEnded(errGoexited)
}

// panicked counts and logs a recovered panic.
func (l *Loop) panicked(v any) *PanicError {
	l.count.add(numPanics, 1)
	err := newPanicError(v)
	l.logPanic(err, l.running.conn)
	return err
}

// logPanic logs a panic, of those with one text one each second: what a peer can cause must not
// fill the log. Any goroutine may call it.
func (l *Loop) logPanic(err *PanicError, c *Conn) {
	text := fmt.Sprint(err.Value)
	more, ok := l.server.panics.Pass(text, time.Now())
	if !ok {
		return
	}
	event := l.server.Logger.Error().Int("more", more).Int("loop", l.index).Str("panic", text).Bytes("stack", err.Stack)
	if c != nil {
		event = event.Uint64("conn", c.id)
	}
	event.Msg("a callback panicked")
}
