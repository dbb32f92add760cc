package sockets

import (
	"net"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Write implements engine.Socket, by send(2). write(2) goes through the kernel's layer for files
// first, which is a hundredth of what an echo costs. There is no function between Write and the
// call: a processor remembers a few dozen callers to predict where returns go to, and the kernel's
// own have replaced ours by then, so each return costs about 25 cycles.
func (d *Descriptor) Write(p []byte) (int, error) {
	if len(p) > MaxRaw {
		n, err := unix.Write(int(*d), p) // which Go's scheduler sees
		return max(n, 0), failed("write", err)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(*d), uintptr(unsafe.Pointer(unsafe.SliceData(p))),
		uintptr(len(p)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
	if errno == 0 {
		return int(n), nil
	}
	return 0, failed("write", errno)
}

func unsent(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return -1
	}
	return n
}

// Gone implements engine.Ender.
func (d *Descriptor) Gone() bool { return gone(d.FD()) }

func gone(fd int) bool {
	const tcpClose = 7 // TCP_CLOSE
	info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	return err == nil && info.State == tcpClose
}

// tcpOptions are those that package net sets for TCP sockets that it makes.
var tcpOptions = [...][2]int{
	{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
	{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, {unix.IPPROTO_TCP, unix.TCP_NODELAY},
}

type optionValues [len(tcpOptions)]int

// netOptions are the values that package net sets, once a socket has been copied.
var netOptions atomic.Pointer[optionValues]

// options returns d's values. False: it is not of TCP.
func (d *Descriptor) options() (v optionValues, ok bool) {
	for i, o := range tcpOptions {
		n, err := unix.GetsockoptInt(d.FD(), o[0], o[1])
		if err != nil && o[0] == unix.IPPROTO_TCP {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// CopyAsIs is Copy for a socket that stays what it is: options that package net has changed are put
// back.
func (d *Descriptor) CopyAsIs() (net.Conn, error) {
	before, isTCP := d.options()
	nc, err := d.Copy()
	if err != nil || !isTCP {
		return nc, err
	}
	now := netOptions.Load()
	if now == nil {
		v, _ := d.options()
		now = &v
		netOptions.Store(now)
	}
	for i, o := range tcpOptions {
		if before[i] != now[i] {
			_ = unix.SetsockoptInt(d.FD(), o[0], o[1], before[i])
		}
	}
	return nc, nil
}
