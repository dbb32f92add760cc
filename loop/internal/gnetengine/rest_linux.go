//go:build !386 && !s390x

package gnetengine

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// rests are the sockets of a poller that are not looked at for a while, and a timerfd(2) that ends
// that for all of them: when the first of them has rested enough.
type rests struct {
	fd  int
	all []*packets
}

// rest has p, which is not reported any more, be woken.
func (p *poller) rest(s *packets, d time.Duration) error {
	if p.rests == nil {
		if err := p.makeRests(); err != nil {
			return err
		}
	}
	if r := p.rests; len(r.all) == 0 {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, d.Nanoseconds()))}
		if err := unix.TimerfdSettime(r.fd, 0, &spec, nil); err != nil {
			return os.NewSyscallError("timerfd_settime", err)
		}
	}
	s.rests = true
	p.rests.all = append(p.rests.all, s)
	return nil
}

func (p *poller) makeRests() error {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	r := &rests{fd: fd}
	if _, err := p.add(fd, unix.EPOLLIN|unix.EPOLLET, r); err != nil {
		_ = unix.Close(fd)
		return err
	}
	p.rests = r
	return nil
}

// polled implements pollee. As the events are edge-triggered the descriptor need not be read.
func (r *rests) polled(uint32) {
	for i, s := range r.all {
		r.all[i] = nil
		s.wake()
	}
	r.all = r.all[:0]
}
