//go:build !386 && !s390x

package gnetengine

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pollBatch is how many events are taken at once.
const pollBatch = 128

// poller is a loop's own epoll instance, which the loop looks into through a door. In it are all
// sockets but UDP listeners, which have doors of their own. It belongs to the loop: there is no
// lock.
type poller struct {
	fd      int
	door    door
	bell    *bell
	entries []entry
	free    []int32
	events  [pollBatch]unix.EpollEvent
}

// A pollee is told what epoll says of its descriptor.
type pollee interface{ polled(events uint32) }

// An entry is a descriptor that is watched. Events carry its place and generation, so that one that
// was taken together with others, and whose descriptor they have closed, reaches nobody.
type entry struct {
	pollee     pollee // nil: free
	generation int32
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	bell, err := newBell()
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &poller{fd: fd, bell: bell}, nil
}

// add begins to watch fd.
func (p *poller) add(fd int, events uint32, who pollee) (place int32, err error) {
	if n := len(p.free); n > 0 {
		place = p.free[n-1]
		p.free = p.free[:n-1]
	} else {
		place = int32(len(p.entries))
		p.entries = append(p.entries, entry{})
	}
	e := &p.entries[place]
	e.generation++
	if err := p.control(unix.EPOLL_CTL_ADD, fd, place, events); err != nil {
		p.free = append(p.free, place)
		return 0, err
	}
	e.pollee = who
	return place, nil
}

// modify changes what fd is watched for.
func (p *poller) modify(place int32, fd int, events uint32) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, place, events)
}

// remove must be called before fd is closed.
func (p *poller) remove(place int32, fd int) {
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, fd, nil)
	p.entries[place].pollee = nil
	p.free = append(p.free, place)
}

func (p *poller) control(op, fd int, place int32, events uint32) error {
	ev := unix.EpollEvent{Events: events, Fd: place, Pad: p.entries[place].generation}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(p.fd, op, fd, &ev))
}

// ready passes on what has happened. What does not fit is reported again: gnet's epoll is
// level-triggered.
func (p *poller) ready() {
	n, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.fd),
		uintptr(unsafe.Pointer(&p.events[0])), pollBatch, 0, 0, 0)
	if errno != 0 {
		return
	}
	for _, ev := range p.events[:n] {
		if e := p.entries[ev.Fd]; e.pollee != nil && e.generation == ev.Pad {
			e.pollee.polled(ev.Events)
		}
	}
}

// look is a look at all sockets. Ahead of a turn that was asked for by Again it makes sure that
// nobody waits for that turn who was there before: where gnet's epoll names the anchor first, and
// then the door, it would have to.
func (l *eventLoop) look() {
	l.poll.ready()
	for _, p := range l.ports {
		p.received()
	}
}

// end tells the sockets that the loop has ended.
func (p *poller) end(err error) {
	for _, e := range p.entries {
		if d, ok := e.pollee.(*direct); ok && !d.closed && !d.ended {
			d.over(err)
		}
	}
}

func (p *poller) close() {
	_ = unix.Close(p.bell.fd)
	_ = unix.Close(p.fd)
}

// stop closes what is left when the loop has ended.
func (p *poller) stop() {
	for _, e := range p.entries {
		switch x := e.pollee.(type) {
		case *direct:
			_ = unix.Close(x.fd)
		case *attempt:
			_ = unix.Close(x.fd)
		case *packets:
			_ = unix.Close(x.fd)
		}
	}
	p.close()
}
