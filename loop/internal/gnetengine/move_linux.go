//go:build !386 && !s390x

package gnetengine

import (
	"net"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Move implements engine.Mover. To take a socket away from gnet and give it back costs three
// descriptors, a goroutine and a registration each time. Who is paused once will be paused again, so
// he stays away: pausing and resuming are a system call each then.
func (s *socket) Move() (engine.Socket, bool) {
	d, ok := s.move()
	if !ok {
		return nil, false
	}
	return d, true
}

// move takes the socket away from gnet: from then on it is in the loop's own epoll instance.
func (s *socket) move() (*direct, bool) {
	if s.loop.poll == nil || s.conn == nil || s.is(markClosed|markLingers|markResuming) {
		return nil, false
	}
	c := s.conn
	if _, tcp := c.RemoteAddr().(*net.TCPAddr); !tcp || s.detach() != nil {
		return nil, false
	}
	c.SetContext(nil) // its OnClose is nobody's business
	_ = s.loop.gnet.Close(c)
	s.loop.reserve.fill()
	s.unwatch()
	s.set(markClosed)
	d := &direct{loop: s.loop, sink: s.sink, fd: s.FD(), waiting: s.is(markWaiting), paused: s.is(markPaused)}
	d.polling = d.wanted()
	var err error
	if d.place, err = s.loop.poll.add(d.fd, d.polling, d); err != nil {
		d.lost(err)
	}
	return d, true
}

// lost ends a socket that epoll does not take, when the callback that brought it here is over.
func (d *direct) lost(err error) {
	d.unlisted = true
	d.loop.execute(func() {
		if !d.closed {
			d.over(err)
		}
	})
}
