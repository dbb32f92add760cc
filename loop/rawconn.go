package loop

import (
	"errors"
	"net"
	"syscall"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/tlsconn"
)

// SyscallConn returns the system's socket of c, for options that have no method here. The Control
// of what it returns is for c's loop only, and for as long as c is not closed (net.ErrClosed); f
// must not block, close the socket, read it or write to it. Read and Write fail with
// errors.ErrUnsupported: the loop does that. The sessions of a UDP address share a socket. An
// error, errors.ErrUnsupported: there is no socket, as in tests in memory.
func (c *Conn) SyscallConn() (syscall.RawConn, error) {
	c.loop.owner.Check("Conn.SyscallConn")
	if _, err := c.systemSocket(); err != nil {
		return nil, err
	}
	return rawConn{c}, nil
}

// systemSocket returns what controls the socket that c has now.
func (c *Conn) systemSocket() (control func(f func(fd uintptr)) error, err error) {
	var sock any = c.sock
	for {
		switch s := sock.(type) {
		case nil:
			return nil, net.ErrClosed
		case *udpSession:
			sock = s.port.to
		case *tlsconn.Conn:
			sock = s.Raw()
		case *tlsStart:
			sock = s.raw
		case interface{ FD() int }:
			return engine.Descriptor(s.FD()).Control, nil
		case syscall.Conn:
			raw, err := s.SyscallConn()
			if err != nil {
				return nil, err
			}
			return raw.Control, nil
		default:
			return nil, errors.ErrUnsupported
		}
	}
}

// rawConn implements syscall.RawConn.
type rawConn struct{ c *Conn }

func (r rawConn) Control(f func(fd uintptr)) error {
	r.c.loop.owner.Check("Control of Conn.SyscallConn")
	control, err := r.c.systemSocket()
	if err != nil {
		return err
	}
	return control(f)
}

func (rawConn) Read(func(fd uintptr) (done bool)) error  { return errors.ErrUnsupported }
func (rawConn) Write(func(fd uintptr) (done bool)) error { return errors.ErrUnsupported }

func init() {
	engine.SocketOf = func(conn any) engine.Socket {
		switch sock := conn.(*Conn).sock.(type) {
		case *tlsconn.Conn:
			return sock.Raw()
		case *tlsStart:
			return sock.raw
		default:
			return sock
		}
	}
}
