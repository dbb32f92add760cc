//go:build unix

package sockets

import (
	"context"
	"math"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// Listen implements engine.Engine.
func (System) Listen(ctx context.Context, lc net.ListenConfig, network, address string) (net.Listener, error) {
	if network == "unix" {
		return listenUnix(ctx, lc, address)
	}
	return lc.Listen(ctx, network, address)
}

// Capacity implements engine.Engine by the limit of open files. Some of that is left for loops,
// listeners, logs and the program's own files, and a share for sockets that are being accepted,
// which may have two descriptors for a moment.
func (System) Capacity(loops int) int {
	n := math.MaxInt32
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		n = int(min(uint64(lim.Cur), math.MaxInt32))
	}
	return max(1, n-n/16-32-10*loops)
}

// ReadBuffer is how much a read takes at first: a power of two, as gnet rounds it up to one. If
// that is full, More reads on, up to MaxRead: long frames are to come whole, as parts of one are
// copied. Each loop has one buffer of MaxRead, of which only the pages are resident that reads have
// filled.
const (
	ReadBuffer = 32 << 10
	MaxRead    = 512 << 10
)

// More reads on after a read has filled the first ReadBuffer bytes of buf, which has MaxRead, as
// far as the sink has room for more, and returns how many bytes there are in all. The end, and what
// is wrong with the socket, are left to the next read.
func More(d Descriptor, buf []byte, sink engine.Sink) int {
	n := ReadBuffer
	room := min(sink.Room(buf[:n]), MaxRead-n)
	if room <= 0 {
		return n
	}
	if d.Poll()&(unix.POLLIN|unix.POLLERR|unix.POLLHUP) != unix.POLLIN { // to read an error would consume it
		return n
	}
	if m, err := unix.Read(d.FD(), buf[n:n+room]); err == nil {
		n += m
	}
	return n
}

// MaxRaw is how many bytes are read or written by a system call that Go's scheduler does not see.
// That saves a tenth of what a small echo costs, and a quarter of a large one: Go's monitor takes
// the P from a system call that it has seen for 20 µs, and starts a thread for it, which finds
// nothing to do. To copy so much takes a tenth of a millisecond, in which the P is busy: less than
// a handler may take.
const MaxRaw = MaxRead

// A Descriptor is a socket that does not block. It implements the part of engine.Socket that needs
// no poller.
type Descriptor int32

// FD returns the descriptor as a number.
func (d *Descriptor) FD() int { return int(*d) }

// failed returns the error of a call that took nothing, or nil if the socket is full, or a signal
// interrupted the call.
func failed(call string, err error) error {
	if err == unix.EAGAIN || err == unix.EINTR {
		return nil
	}
	return os.NewSyscallError(call, err)
}

// HasInput implements engine.Socket.
func (d *Descriptor) HasInput() bool { return d.Poll()&unix.POLLIN != 0 }

// Poll returns what poll(2) says of input, and of the end.
func (d *Descriptor) Poll() (events int16) {
	fds := [1]unix.PollFd{{Fd: int32(*d), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds[:], 0); err != nil || n <= 0 {
		return 0
	}
	return fds[0].Revents
}

// Unacked implements engine.Socket.
func (d *Descriptor) Unacked() int { return unacked(d.FD()) }

// CloseWrite implements engine.Socket.
func (d *Descriptor) CloseWrite() { _ = unix.Shutdown(d.FD(), unix.SHUT_WR) }

// ResetOnClose makes the close of the socket reset the peer. Otherwise the kernel keeps what a peer
// with a closed window does not take, for many minutes.
func (d *Descriptor) ResetOnClose() {
	_ = unix.SetsockoptLinger(d.FD(), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
}

// WasReset returns the error of a paused TCP socket that is broken, or nil. If the peer had ended
// its output before that, the system's error is another one, and what came is all there is: it must
// not be lost. Nor must it for a unix socket, where a reset only means that the peer has not read
// everything.
func (d *Descriptor) WasReset() error { return wasReset(d.FD()) }

func wasReset(fd int) error {
	local, err := unix.Getsockname(fd)
	if _, isUnix := local.(*unix.SockaddrUnix); isUnix || err != nil {
		return nil
	}
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if errno := syscall.Errno(n); err == nil && errno != 0 && errno != unix.EPIPE {
		return os.NewSyscallError("read", errno)
	}
	return nil
}

// Copy returns a copy of the socket as a connection of package net. Package net makes the
// descriptor blocking for a moment, so no other goroutine may use it meanwhile.
func (d *Descriptor) Copy() (net.Conn, error) {
	dup, err := copyFD(d.FD())
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dup), "socket")
	defer f.Close()
	return net.FileConn(f)
}

// TakeOver returns a copy of the descriptor of nc, and closes nc.
func TakeOver(nc net.Conn) (fd int, err error) {
	defer nc.Close()
	err = With(nc, func(n int) (err error) {
		fd, err = copyFD(n)
		return err
	})
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// copyFD returns a copy of a descriptor that no child inherits.
func copyFD(fd int) (int, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	return n, os.NewSyscallError("fcntl", err)
}

// HasInput reports whether bytes, datagrams or the end wait to be read. Another reader may get them
// at the same time.
func HasInput(c net.Conn) (found bool) {
	_ = With(c, func(fd int) error {
		d := Descriptor(fd)
		found = d.HasInput()
		return nil
	})
	return found
}
