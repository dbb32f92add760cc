package sockets

import (
	"net"
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

// CopyAsIs is Copy for a socket that stays what it is: package net sets options of TCP sockets that
// it makes, which are put back.
func (d *Descriptor) CopyAsIs() (net.Conn, error) {
	options := [...][2]int{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}, {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT}, {unix.IPPROTO_TCP, unix.TCP_NODELAY},
	}
	var values [len(options)]int
	var errs [len(options)]error // not of TCP
	for i, o := range options {
		values[i], errs[i] = unix.GetsockoptInt(d.FD(), o[0], o[1])
	}
	nc, err := d.Copy()
	for i, o := range options {
		if errs[i] == nil && err == nil {
			_ = unix.SetsockoptInt(d.FD(), o[0], o[1], values[i])
		}
	}
	return nc, err
}
