//go:build !386 && !s390x

package gnetengine

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// adopt is Enroll with a poller. It takes over nc, and waits until open has returned on the loop.
func (l *eventLoop) adopt(nc net.Conn, open func(engine.Socket) engine.Sink) error {
	_, tcp := nc.(*net.TCPConn)
	fd, err := takeOver(nc)
	if err != nil {
		return err
	}
	d := &direct{loop: l, fd: fd, unix: !tcp, level: !tcp}
	begun := false
	err = l.call(func() error {
		begun = true
		return d.begin(open)
	})
	if err == errEnded && !begun { // if begun, open has ended the loop, and its poller closes the socket
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

// call runs f on the loop, and waits for it. errEnded: the loop ends, and f was not called, or has
// ended it.
func (l *eventLoop) call(f func() error) error {
	result := make(chan error, 1)
	l.execute(func() { result <- f() })
	select {
	case err := <-result:
		return err
	case <-l.ended:
	}
	select {
	case err := <-result:
		return err
	default:
		return errEnded
	}
}

// takeOver returns a copy of nc's descriptor, and closes nc.
func takeOver(nc net.Conn) (fd int, err error) {
	defer nc.Close()
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	err = raw.Control(func(n uintptr) { fd, failed = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0) })
	if err == nil {
		err = os.NewSyscallError("dup", failed)
	}
	return fd, err
}

// begin opens d on its loop.
func (d *direct) begin(open func(engine.Socket) engine.Sink) (err error) {
	d.polling = d.wanted()
	if d.place, err = d.loop.poll.add(d.fd, d.polling, d); err != nil {
		_ = unix.Close(d.fd)
		return err
	}
	d.opened(open(d))
	return nil
}

// opened is told who takes what comes.
func (d *direct) opened(sink engine.Sink) {
	if d.sink = sink; sink == nil {
		d.Close(false)
	} else if !d.closed && !d.watch() {
		d.over(os.NewSyscallError("epoll_ctl", unix.ENOMEM))
	}
}
