//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package gnetengine

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// reserve is a descriptor that a loop keeps for when there are no more. To pause or to linger a
// socket needs a second one for a moment, until gnet has closed the first, and without it input or
// output would be lost. It is used on the loop only.
type reserve struct {
	fd   int
	kept bool
}

// fill takes a descriptor, if there is none in the reserve and the system has one.
func (r *reserve) fill() {
	if r.kept {
		return
	}
	syscall.ForkLock.RLock()                                  // no child inherits it
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0) // the cheapest that needs nothing else
	if err == nil {
		unix.CloseOnExec(fd)
		r.fd, r.kept = fd, true
	}
	syscall.ForkLock.RUnlock()
}

// dup returns a copy of fd: the reserve becomes that, so that what one loop gives back, when gnet
// closes the original, is never more than what it takes, and loops do not take the last one from
// each other.
func (r *reserve) dup(fd int) (int, error) {
	r.fill()
	if !r.kept {
		return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	r.kept = false
	if err := replace(r.fd, fd); err != nil { // in one step: nobody else gets the number in between
		_ = unix.Close(r.fd)
		return -1, err
	}
	return r.fd, nil
}

func (r *reserve) drop() {
	if r.kept {
		r.kept = false
		_ = unix.Close(r.fd)
	}
}
