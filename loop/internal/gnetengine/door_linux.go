//go:build !386 && !s390x

package gnetengine

import (
	"encoding/binary"
	"errors"
	"math"
	"net"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// proofTimeout is how long a loop may take to show that doors work. It is idle then.
const proofTimeout = 2 * time.Second

var errNoDoor = errors.New("loop: the event loop does not report descriptors of ours")

// A door is a way for a descriptor that is not a connection into gnet's epoll instance, so that its
// loop calls us when the descriptor is readable: no goroutine, no Execute, no allocation.
//
// gnet registers what it takes for a connection's socket under its number N, and reads N when epoll
// reports N. But epoll knows the open file behind N, not the number. So a copy of our descriptor is
// enrolled, and then N is made another file: an eventfd that is readable for ever. From then on,
// when our file is readable, gnet reads eight bytes from the eventfd, finds that the connection has
// traffic, and calls OnTraffic, level-triggered as ever. That rests on what epoll(7) says of open
// file descriptions, and on gnet's public face. It is tried at the start, once for each loop; where
// it does not work, we do without.
type door struct {
	fd    int    // the file of ours
	begin func() // nil, or what is called first
	ready func()
	conn  gnet.Conn
	err   error
	over  bool
}

// open enrols d. It waits for the loop, so it must not be called on it.
func (d *door) open(l *eventLoop) error {
	nc, peer, err := socketPair()
	if err != nil {
		return err
	}
	_ = unix.Close(peer)
	raw, err := nc.(*net.UnixConn).SyscallConn()
	if err != nil {
		return errors.Join(err, nc.Close())
	}
	var failed error
	err = raw.Control(func(n uintptr) { failed = unix.Dup3(d.fd, int(n), unix.O_CLOEXEC) })
	if err = errors.Join(err, failed); err != nil {
		return errors.Join(err, nc.Close())
	}
	t := &ticket{loop: l, door: d}
	if err := l.enroll(nc, t); err != nil {
		return err
	}
	return d.err
}

// opened is called on the loop when gnet has d.fd in its epoll instance.
func (d *door) opened(c gnet.Conn) {
	c.SetContext(d)
	d.conn = c
	always, err := readableForever()
	if err == nil {
		err = unix.Dup3(always, c.Fd(), unix.O_CLOEXEC)
		_ = unix.Close(always)
	}
	if err != nil {
		d.err = os.NewSyscallError("eventfd", err)
	} else if d.begin != nil {
		d.begin()
	}
}

// readableForever returns an eventfd that gives a 1 for each read, 2^64-2 times.
func readableForever() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_SEMAPHORE|unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	var most [8]byte
	binary.NativeEndian.PutUint64(most[:], math.MaxUint64-1)
	if _, err := unix.Write(fd, most[:]); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// close ends d, on the loop. Its file is the caller's to close.
func (d *door) close(l *eventLoop) {
	if d.over {
		return
	}
	d.over = true
	_ = unix.Dup3(d.fd, d.conn.Fd(), unix.O_CLOEXEC) // so that gnet finds in epoll what it put there
	_ = l.gnet.Close(d.conn)
}

// startPoller gives l an epoll instance behind a door, if doors work here.
func (l *eventLoop) startPoller() error {
	p, err := newPoller()
	if err != nil {
		return err
	}
	p.door = door{fd: p.fd, ready: p.ready}
	if err := p.door.open(l); err != nil {
		p.close()
		return err
	}
	if err := p.prove(l); err != nil {
		l.execute(func() { p.door.close(l); p.close() })
		return err
	}
	l.poll = p
	return nil
}

// prove has the loop's bell ring.
func (p *poller) prove(l *eventLoop) error {
	rung, failed := make(chan struct{}), make(chan error, 1)
	p.bell.ring = func() { close(rung) }
	l.execute(func() {
		if _, err := p.add(p.bell.fd, unix.EPOLLIN|unix.EPOLLET, p.bell); err != nil {
			failed <- err
			return
		}
		p.bell.Publish(0)
	})
	select {
	case <-rung:
		return nil
	case err := <-failed:
		return err
	case <-time.After(proofTimeout):
	case <-l.ended:
	}
	return errNoDoor
}
