package loop

import (
	"net"
	"reflect"
	"time"

	"github.com/loopwheel/loopwheel/internal/wheel"
	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// ConnInfo is what there is to see of a connection, for tools that show them.
type ConnInfo struct {
	ID        uint64
	Remote    net.Addr
	Handler   string    // the type of the innermost Handler, within all middlewares
	Opened    time.Time // times are those of the turns in which it happened
	LastRead  time.Time // when bytes came last, or it was opened
	LastWrite time.Time // when the system took bytes last, or it was opened
	Pending   int       // bytes of output that the system has not taken
	Buffered  int       // bytes of input that are not a whole frame or message yet, or wait
	Paused    bool      // it is not read: PauseRead, backpressure, or others come first
	Closing   bool

	// IdleDeadline is when the connection will be evicted if nothing is received until then; zero:
	// never.
	IdleDeadline time.Time
}

// Info returns what there is to see of c. It takes some 100 ns.
func (c *Conn) Info() ConnInfo {
	c.loop.owner.Check("Conn.Info")
	l, opened := c.loop, c.idle.opened
	parts, _ := c.unfinished()
	info := ConnInfo{
		ID:        c.id,
		Remote:    c.addrs.remote(),
		Handler:   c.handlerName(),
		Opened:    l.wallTime(opened),
		LastRead:  l.wallTime(max(opened, c.idle.lastRead)),
		LastWrite: l.wallTime(max(opened, c.idle.lastWrite)),
		Pending:   c.pending(),
		Buffered:  c.in.decoder.Buffered() + parts,
		Paused:    c.in.pauses != 0,
		Closing:   c.isClosing(),
	}
	if when := c.evictAt(); when != never && !info.Closing {
		info.IdleDeadline = l.wallTime(when)
	}
	return info
}

// handlerName returns the type of the handler that HandlerAs would find last: of the one before
// that if its Unwrap panics.
func (c *Conn) handlerName() (name string) {
	var at any
	goroutine.Guard(func() {
		for at = range layers(c.handler) {
		}
	}, func(any) {})
	if t := reflect.TypeOf(at); t != nil {
		return t.String() // as fmt's %T, without an allocation
	}
	return ""
}

// WheelRings returns the loop's timing wheel as it can be drawn, in constant time.
func (l *Loop) WheelRings() []wheel.Ring {
	l.owner.Check("Loop.WheelRings")
	return l.wheel.Rings()
}
