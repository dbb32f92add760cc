package redisgroup

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxDirect is how much is read or written without telling Go's scheduler: a tenth of a millisecond.
const maxDirect = 64 << 10

// A direct is a connection that reads and writes without telling Go's scheduler, which would wake
// its monitor: a thread that then looks each 20 µs what the others do, for a millisecond or more,
// and takes a fifth of the CPU time of a process that has little else to do. Neither call waits:
// Go's poller does.
//
// One goroutine may read and one write at a time.
type direct struct {
	net.Conn
	in, out transfer
}

// A transfer is a read or a write that is under way.
type transfer struct {
	call string // read or write
	trap uintptr
	wait func(try func(fd uintptr) (done bool)) error // until the descriptor is ready for it
	try  func(fd uintptr) (done bool)

	p   []byte
	n   int
	err error
}

// madeDirect returns conn, as a direct if it is one of the system's. A connection of any other type
// may do more than its file descriptor, also if it has one.
func madeDirect(conn net.Conn) net.Conn {
	var raw syscall.RawConn
	var err error
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return conn
	}
	if err != nil {
		return conn
	}
	d := &direct{
		Conn: conn,
		in:   transfer{call: "read", trap: unix.SYS_READ, wait: raw.Read},
		out:  transfer{call: "write", trap: unix.SYS_WRITE, wait: raw.Write},
	}
	d.in.try, d.out.try = d.in.once, d.out.once
	return d
}

// Read implements net.Conn.
func (d *direct) Read(p []byte) (int, error) {
	n, err := d.in.carry(p[:min(len(p), maxDirect)])
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (d *direct) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = d.out.carry(p[n:min(len(p), n+maxDirect)])
		n += k
	}
	return n, err
}

// carry does it with p, in part if that is all there is, or fits.
func (t *transfer) carry(p []byte) (int, error) {
	t.p, t.n, t.err = p, 0, nil
	err := t.wait(t.try)
	t.p = nil
	if err != nil {
		return 0, err
	}
	return t.n, t.err
}

// once tries it, and reports whether that is all.
func (t *transfer) once(fd uintptr) (done bool) {
	for {
		n, _, errno := syscall.RawSyscall(t.trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.p))), uintptr(len(t.p)))
		switch errno {
		case 0:
			t.n = int(n)
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			t.err = os.NewSyscallError(t.call, errno)
			return true
		}
	}
}
