//go:build linux && !386 && !s390x

package epoll

import (
	"encoding/binary"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What follows are system calls that do not wait, without telling Go's scheduler: for the same reason
// as direct's. A connect on the same machine, or a close, takes so long that Go's monitor often takes
// the P of one that the scheduler knows of, and wakes a thread for it, which finds nothing.

// rawSocket returns a stream socket that does not block.
func rawSocket(family int) (fd int, err error) {
	n, _, errno := syscall.RawSyscall(unix.SYS_SOCKET, uintptr(family),
		unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("socket", errno)
	}
	return int(n), nil
}

// rawOption sets an option, if the system has it.
func rawOption(fd, level, name int, value int32) {
	_, _, _ = syscall.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
}

// rawConnect begins to connect.
func rawConnect(fd int, to netip.AddrPort) error {
	in4 := unix.RawSockaddrInet4{Family: unix.AF_INET}
	in6 := unix.RawSockaddrInet6{Family: unix.AF_INET6}
	at, size := unsafe.Pointer(&in6), unsafe.Sizeof(in6)
	if to.Addr().Is4() {
		in4.Addr = to.Addr().As4()
		at, size = unsafe.Pointer(&in4), unsafe.Sizeof(in4)
	} else {
		in6.Addr = to.Addr().As16()
	}
	// The port lies at the same place in both, in the network's order.
	binary.BigEndian.PutUint16((*[4]byte)(at)[2:], to.Port())
	_, _, errno := syscall.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(at), size)
	if errno != 0 && errno != unix.EINPROGRESS && errno != unix.EINTR {
		return os.NewSyscallError("connect", errno)
	}
	return nil
}

// localAddr returns a socket's own address. x/sys would ask each socket whether it is one of SCTP.
func localAddr(fd int) (netip.AddrPort, error) {
	var in6 unix.RawSockaddrInet6
	size := uint32(unsafe.Sizeof(in6))
	at := unsafe.Pointer(&in6)
	_, _, errno := syscall.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(at), uintptr(unsafe.Pointer(&size)))
	port := binary.BigEndian.Uint16((*[4]byte)(at)[2:])
	switch {
	case errno != 0:
	case in6.Family == unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(at).Addr), port), nil
	case in6.Family == unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16(in6.Addr), port), nil
	default:
		errno = unix.EAFNOSUPPORT
	}
	return netip.AddrPort{}, os.NewSyscallError("getsockname", errno)
}

// rawControl is epoll_ctl.
func rawControl(epoll, op, fd int, event *unix.EpollEvent) error {
	_, _, errno := syscall.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), uintptr(op), uintptr(fd),
		uintptr(unsafe.Pointer(event)), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// rawClose closes a socket. None of ours lingers in close.
func rawClose(fd int) { _, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }
