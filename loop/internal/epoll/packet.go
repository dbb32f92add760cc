//go:build linux && !386 && !s390x

package epoll

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// packets implements engine.Packets with a socket in the loop's poller.
type packets struct {
	*sockets.UDP
	loop   *epollLoop
	sink   engine.PacketSink
	fd     int
	place  int32          // in the poller
	kept   *sockets.Batch // which the sink still uses
	closed bool
	held   bool
}

// ServePacket implements engine.Loop.
func (l *epollLoop) ServePacket(nc net.Conn, sink engine.PacketSink) (engine.Packets, error) {
	p := &packets{UDP: sockets.UDPOf(nc), loop: l, sink: sink}
	var err error
	if p.fd, err = p.Detach(); err == nil {
		p.place, err = l.add(p.fd, unix.EPOLLIN, p)
	}
	if err != nil {
		_ = p.UDP.Close()
		return nil, err
	}
	return p, nil
}

// polled implements pollee: there is something to receive.
func (p *packets) polled(uint32) {
	l := p.loop
	if p.held {
		return // of the same look at the poller
	}
	if l.packets == nil {
		l.packets = sockets.NewBatch()
	}
	b := l.packets
	switch p.Receive(b); {
	case len(b.All) > 0:
		if !p.sink.Received(b.All) && !p.closed {
			p.kept, l.packets = b, nil
			_ = l.control(unix.EPOLL_CTL_MOD, p.fd, p.place, unix.EPOLLONESHOT) // it is not read meanwhile
		}
	case b.Err == nil || errors.Is(b.Err, unix.EAGAIN) || errors.Is(b.Err, unix.EINTR):
	default:
		p.sink.Failed(b.Err)
	}
}

// Resume implements engine.Packets.
func (p *packets) Resume() {
	p.loop.packets, p.kept = p.kept, nil
	p.listen()
}

func (p *packets) listen() {
	if !p.held {
		_ = p.loop.control(unix.EPOLL_CTL_MOD, p.fd, p.place, unix.EPOLLIN)
	}
}

// Hold implements engine.Holder.
func (p *packets) Hold(on bool) {
	if p.held = on; on {
		_ = p.loop.control(unix.EPOLL_CTL_MOD, p.fd, p.place, unix.EPOLLONESHOT)
	} else if p.kept == nil {
		p.listen()
	}
}

func (p *packets) HasInput() bool { return p.Readable() }

func (p *packets) Close() {
	if p.closed {
		return
	}
	p.Flush()
	p.closed = true
	p.loop.remove(p.place, p.fd)
	_ = p.UDP.Close()
}

// release implements pollee.
func (p *packets) release() { _ = p.UDP.Close() }
