package loop

import (
	"fmt"
	"runtime/debug"
)

// rescue, deferred around user code, turns a panic into the end of the connection whose code it was. A
// panic of the loop's own timers and posts costs that firing only.
func (l *Loop) rescue() {
	if l.returned {
		l.returned = false
		return
	}
	v := recover()
	if v == nil {
		l.exited()
		return
	}
	err := l.panicked(v)
	if c := l.current; c != nil {
		c.shut(err)
	}
}

// callHook runs f as c's code.
func (c *Conn) callHook(f func()) {
	if f == nil {
		return
	}
	c.loop.current = c
	defer c.loop.rescue()
	f()
	c.loop.returned = true
	c.loop.current = nil // what runs next, in this batch of timers, may be the loop's own
}

// exited is called while the goroutine of the loop ends, because a callback called runtime.Goexit, as
// t.Fatal does. All that is left is to end the loop in order, and the server with it.
func (l *Loop) exited() {
	l.decoding = 0
	l.server.Logger.Error().Int("loop", l.index).Bytes("stack", debug.Stack()).Msg("a callback ended the goroutine of its loop")
	l.server.engine.Lost(l.index)
	(*host)(l.server).Ended(l.index, errGoexited)
}

// panicked counts and logs a recovered panic.
func (l *Loop) panicked(v any) *PanicError {
	l.count.panics++
	l.rare = true
	err := &PanicError{Value: v, Stack: debug.Stack()}
	l.logPanic(err, l.current)
	return err
}

// logPanic may be called on any goroutine.
func (l *Loop) logPanic(err *PanicError, c *Conn) {
	event := l.server.Logger.Error().Int("loop", l.index).Str("panic", fmt.Sprint(err.Value)).Bytes("stack", err.Stack)
	if c != nil {
		event = event.Uint64("conn", c.id)
	}
	event.Msg("a callback panicked")
}

// Try runs f at once, on the loop, for packages that call functions of several users in one callback,
// as package handler does, and do not want one that panics to take the others with it. A panic in f is
// logged and counted as usual, and returned as a *PanicError; nil means there was none.
func (l *Loop) Try(f func()) (err error) {
	l.owner.Check("Loop.Try")
	defer func() {
		if v := recover(); v != nil {
			err = l.panicked(v)
		}
	}()
	f()
	return nil
}
