package loop

import (
	"cmp"
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inheritsKeepAlive says that connections have the keep-alives of their listener. To have package
// net set them for each takes four system calls.
const inheritsKeepAlive = true

// keepAlive and keepAliveCount are package net's defaults.
const keepAlive, keepAliveCount = 15 * time.Second, 9

// setKeepAlive sets the keep-alives of a listener: as package net does it for each connection.
func setKeepAlive(fd int, o TCPOptions) (err error) {
	if o.NoKeepAlive {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0)
	}
	set := func(level, name, value int) {
		if value >= 0 { // less means the system's
			err = errors.Join(err, unix.SetsockoptInt(fd, level, name, value))
		}
	}
	set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	set(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(cmp.Or(o.KeepAlive.Idle, keepAlive)))
	set(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(cmp.Or(o.KeepAlive.Interval, keepAlive)))
	set(unix.IPPROTO_TCP, unix.TCP_KEEPCNT, cmp.Or(o.KeepAlive.Count, keepAliveCount))
	return err
}

// seconds rounds up. Less than none stays less.
func seconds(d time.Duration) int {
	if d < 0 {
		return -1
	}
	return int((d + time.Second - 1) / time.Second)
}

// setUserTimeout sets TCP_USER_TIMEOUT, which counts in milliseconds.
func setUserTimeout(fd int, d time.Duration) error {
	if d == 0 {
		return nil
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(max(1, d.Milliseconds())))
}

// sharePort has a socket that is bound without a port get one when it connects, when it is known to
// which address. Otherwise bind takes a port for all addresses.
func sharePort(c syscall.RawConn) {
	_ = c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) // or as before Linux 4.2
	})
}
