//go:build linux && !386 && !s390x

package epoll

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

const (
	// spliceFlags leave the data where they are, and do not wait.
	spliceFlags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK

	// spliceMost is how much goes through the pipe at once: an unprivileged user's pipes have a
	// limit.
	spliceMost = 256 << 10
)

// A kernelPipe is what splice(2) needs between two sockets. One serves a whole loop, because it is
// empty between two uses: what the target does not take is read out of it at once.
type kernelPipe struct{ r, w int }

func newKernelPipe() *kernelPipe {
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return nil
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, spliceMost) // otherwise it is smaller
	return &kernelPipe{fds[0], fds[1]}
}

func (p *kernelPipe) close() {
	if p != nil {
		_ = unix.Close(p.r)
		_ = unix.Close(p.w)
	}
}

// readRest empties the pipe into buf, which is as long as what is in there.
func (p *kernelPipe) readRest(buf []byte) error {
	for n := 0; n < len(buf); {
		k, err := unix.Read(p.r, buf[n:])
		if err != nil && err != unix.EINTR {
			return os.NewSyscallError("read", err)
		}
		n += max(k, 0)
	}
	return nil
}

// Splice implements engine.Splicer.
func (s *socket) Splice(f engine.Flow) bool {
	if f != nil && !s.loop.hasPipe() {
		return false
	}
	s.flow = f
	return true
}

// hasPipe makes the loop's pipe, if there is none.
func (l *eventLoop) hasPipe() bool {
	if l.pipe == nil {
		l.pipe = newKernelPipe()
	}
	return l.pipe != nil
}

// receive takes what has come.
func (s *socket) receive() {
	if s.flow == nil {
		s.read()
		return
	}
	if to, ok := s.flow.Target().(*socket); ok && s.loop.hasPipe() {
		s.splice(to.fd)
		return
	}
	s.read()
}

// splice passes on what has come to the socket to.
func (s *socket) splice(to int) {
	p := s.loop.pipe
	n, err := rawSplice(s.fd, p.w, spliceMost)
	switch {
	case n > 0:
		s.spliceOut(to, n)
	case err == unix.EINTR:
	case err == unix.EAGAIN: // nothing, or urgent data, which only reading gets past
		s.read()
	case err == unix.EINVAL: // not with this kind of socket
		s.flow = nil
		s.read()
	case err != nil:
		s.over(os.NewSyscallError("splice", err))
	default:
		s.over(io.EOF)
	}
}

// rawSplice is splice(2) without telling Go's scheduler: see maxRaw.
func rawSplice(from, to, n int) (int, error) {
	k, _, errno := syscall.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), spliceFlags)
	if errno != 0 {
		return 0, errno
	}
	return int(k), nil
}

// spliceOut moves the n bytes in the pipe on. That to is broken is found by who writes the rest.
func (s *socket) spliceOut(to, n int) {
	p, moved := s.loop.pipe, 0
	for moved < n {
		k, err := rawSplice(p.r, to, n-moved)
		if k <= 0 && err != unix.EINTR {
			break
		}
		moved += k
	}
	rest := s.loop.buffer()[:n-moved]
	if err := p.readRest(rest); err != nil {
		p.close()
		s.loop.pipe = nil
		f := s.flow
		s.flow = nil
		if f.Passed(moved, nil); !s.closed {
			s.over(err)
		}
		return
	}
	s.flow.Passed(moved, rest)
}
