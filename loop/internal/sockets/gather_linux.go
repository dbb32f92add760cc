package sockets

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// HasWritev and HasSendFile report whether this system has Writev and SendFile.
const HasWritev, HasSendFile = true, true

// maxVectors is how many buffers Linux takes at once (UIO_MAXIOV).
const maxVectors = 1024

// Writev writes as much of bufs as a socket takes now. A full socket is no error.
func Writev(fd int, bufs [][]byte) (written int, err error) {
	for len(bufs) > 0 {
		now, size := bufs[:min(len(bufs), maxVectors)], 0
		for _, b := range now {
			size += len(b)
		}
		n, err := unix.SendmsgBuffers(fd, now, nil, nil, unix.MSG_NOSIGNAL)
		switch err {
		case nil:
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return written, nil
		default:
			return written, err
		}
		if written += n; n < size {
			break // it is full
		}
		bufs = bufs[len(now):]
	}
	return written, nil
}

// SendFile makes the system send up to n bytes of a file, as many as a socket takes now. A full
// socket is no error. errors.ErrUnsupported: this file cannot be sent so, or not be read.
func SendFile(fd int, f syscall.RawConn, at int64, n int) (sent int, err error) {
	controlErr := f.Control(func(from uintptr) {
		for {
			if sent, err = unix.Sendfile(fd, int(from), &at, n); err != unix.EINTR {
				return
			}
		}
	})
	switch {
	case controlErr != nil:
		return 0, errors.ErrUnsupported // to read it says why
	case err == unix.EAGAIN:
		return 0, nil
	case err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOVERFLOW || err == unix.EIO || err == nil && sent == 0:
		return 0, errors.ErrUnsupported
	}
	return max(0, sent), err
}
