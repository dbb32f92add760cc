//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// floorPeers are loops on epoll by hand, in Go and in C, without timeouts and limits: what a
// framework adds is the difference to them. Netty is what one would take instead of Go.
var floorPeers = []peer{
	{name: "epoll-go", title: "epoll in Go", serve: serveEpoll},
	{name: "epoll-c", title: "epoll in C", serve: serveC, needs: []string{"cc"}},
	{name: "netty", title: "Netty", serve: serveNetty, needs: []string{"java", "javac", nettyJars[0]}, slow: true},
}

var (
	//go:embed foreign/epoll.c
	epollC []byte
	//go:embed foreign/Netty.java
	nettyJava []byte

	nettyJars = []string{"/usr/share/java/netty-handler.jar", "/usr/share/java/netty-codec.jar", "/usr/share/java/netty-transport.jar",
		"/usr/share/java/netty-buffer.jar", "/usr/share/java/netty-resolver.jar", "/usr/share/java/netty-common.jar", "/usr/share/java/jctools-core.jar"}
)

// become compiles a source file by a command, and is another program from then on.
func become(source string, text []byte, compiler, program []string) error {
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command(compiler[0], compiler[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler[0], err, out)
	}
	path, err := exec.LookPath(program[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, program, os.Environ())
}

func serveC(s setup) error {
	exe := filepath.Join(s.Dir, "epoll")
	return become(exe+".c", epollC, []string{"cc", "-O2", "-pthread", "-o", exe, exe + ".c"}, []string{exe, fmt.Sprint(s.Loops)})
}

// serveNetty has an IdleStateHandler, and as many cores as the others.
func serveNetty(s setup) error {
	source, path := filepath.Join(s.Dir, "Netty.java"), strings.Join(append(nettyJars, s.Dir), ":")
	return become(source, nettyJava, []string{"javac", "-cp", path, "-d", s.Dir, source},
		[]string{"java", "-cp", path, "-XX:+UseSerialGC", fmt.Sprintf("-XX:ActiveProcessorCount=%d", s.Loops),
			"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
			"-Dio.netty.tryReflectionSetAccessible=true", "Netty", fmt.Sprint(s.Loops), fmt.Sprint(s.Timeout.Milliseconds())})
}

// An epollConn is a connection of serveEpoll, with the output that its socket has not taken.
type epollConn struct {
	fd  int
	in  remainder
	out []byte
}

// An epollLoop is one loop on epoll, level-triggered.
type epollLoop struct {
	ep, door int
	conns    map[int32]*epollConn
	buf      []byte
}

func serveEpoll(s setup) error {
	addr := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	failed := make(chan error)
	for range s.Loops {
		l, err := newEpollLoop(addr)
		if err != nil {
			return err
		}
		go func() { failed <- l.run() }()
	}
	fmt.Printf("127.0.0.1:%d\n", addr.Port)
	return <-failed
}

// newEpollLoop listens at addr, and sets its port if that is 0.
func newEpollLoop(addr *unix.SockaddrInet4) (*epollLoop, error) {
	door, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(door, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return nil, err
	}
	if err := unix.Bind(door, addr); err != nil {
		return nil, err
	}
	if err := unix.Listen(door, 4096); err != nil {
		return nil, err
	}
	local, err := unix.Getsockname(door)
	if err != nil {
		return nil, err
	}
	addr.Port = local.(*unix.SockaddrInet4).Port
	ep, err := unix.EpollCreate1(0)
	if err != nil {
		return nil, err
	}
	l := &epollLoop{ep: ep, door: door, conns: map[int32]*epollConn{}, buf: make([]byte, 256<<10)}
	return l, l.watch(unix.EPOLL_CTL_ADD, door, unix.EPOLLIN)
}

func (l *epollLoop) watch(op, fd int, events uint32) error {
	return unix.EpollCtl(l.ep, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)})
}

func (l *epollLoop) run() error {
	events := make([]unix.EpollEvent, 256)
	for {
		n, err := unix.EpollWait(l.ep, events, -1)
		if err != nil && err != unix.EINTR {
			return err
		}
		for _, ev := range events[:max(0, n)] {
			if int(ev.Fd) == l.door {
				l.accept()
				continue
			}
			if c := l.conns[ev.Fd]; !l.serve(c) {
				delete(l.conns, ev.Fd)
				_ = unix.Close(c.fd)
			}
		}
	}
}

func (l *epollLoop) accept() {
	fd, _, err := unix.Accept4(l.door, unix.SOCK_NONBLOCK)
	if err != nil {
		return
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	l.conns[int32(fd)] = &epollConn{fd: fd}
	_ = l.watch(unix.EPOLL_CTL_ADD, fd, unix.EPOLLIN)
}

// serve writes what waits, or else reads once and echoes the whole frames. It reports whether the
// connection goes on.
func (l *epollLoop) serve(c *epollConn) bool {
	if len(c.out) > 0 {
		return l.send(c, c.out)
	}
	n, err := unix.Read(c.fd, l.buf)
	if n <= 0 {
		return err == unix.EAGAIN
	}
	out := c.in.frames(l.buf[:n])
	return len(out) == 0 || l.send(c, out)
}

// send writes b, and keeps what the socket does not take. Until that has gone, c is not read.
func (l *epollLoop) send(c *epollConn, b []byte) bool {
	n, err := unix.Write(c.fd, b)
	if err != nil && err != unix.EAGAIN {
		return false
	}
	waited := len(c.out) > 0
	c.out = append(c.out[:0], b[max(0, n):]...)
	switch {
	case !waited && len(c.out) > 0:
		_ = l.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLOUT)
	case waited && len(c.out) == 0:
		_ = l.watch(unix.EPOLL_CTL_MOD, c.fd, unix.EPOLLIN)
	}
	return true
}
