package loop

import (
	"reflect"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/goroutine"
)

// info is inside.ForMetrics.Info.
func (c *Conn) info() inside.ConnInfo {
	l, opened := c.loop, c.idle.opened
	parts, _ := c.unfinished()
	info := inside.ConnInfo{
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
