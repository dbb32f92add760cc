//go:build linux && !386 && !s390x

package epoll

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// arrived waits until n bytes wait in a socket.
func arrived(t *testing.T, s engine.Socket, n int) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if k, err := unix.IoctlGetInt(s.(*socket).FD(), unix.TIOCINQ); err == nil && k >= n {
			return
		}
	}
	t.Errorf("%d bytes have not arrived", n)
}

// hears waits until a sink has heard want, in however many pieces.
func (e *ear) hears(t *testing.T, want string) {
	t.Helper()
	var got strings.Builder
	for got.Len() < len(want) {
		got.WriteString(wait(t, e.heard, "what was sent"))
	}
	if got.String() != want {
		t.Errorf("heard %d bytes, not the %d that were sent", got.Len(), len(want))
	}
}

// A loop misses nothing of what one read leaves: what is after urgent data, or after a full buffer,
// and the end.
func TestReadsThatLeaveSomething(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 2*sockets.ReadBuffer/16)
	for name, c := range map[string]struct {
		want   string
		arrive int // bytes that are said to wait: of those before a mark of urgent data only
		send   func(peer *net.TCPConn) error
		ends   bool
	}{
		"urgent data": {want: "before, after", arrive: 6, send: func(peer *net.TCPConn) error {
			_, before := peer.Write([]byte("before"))
			urgent := sendUrgent(peer)
			_, behind := peer.Write([]byte(", after"))
			return errors.Join(before, urgent, behind)
		}},
		"a full buffer": {want: string(large), arrive: sockets.ReadBuffer + 1, send: func(peer *net.TCPConn) error {
			go func() { _, _ = peer.Write(large) }()
			return nil
		}},
		"the end": {want: "last words", arrive: 10, ends: true, send: func(peer *net.TCPConn) error {
			_, err := peer.Write([]byte("last words"))
			return errors.Join(err, peer.CloseWrite())
		}},
	} {
		engines(t, 1, func(t *testing.T, r *rig) {
			e := newEar()
			sock, peer := accept(t, r, e)
			if err := unix.SetsockoptInt(sock.(*socket).FD(), unix.SOL_SOCKET, unix.SO_RCVBUF, 4*sockets.ReadBuffer); err != nil {
				t.Fatal(err)
			}
			r.do(0, func() {
				if err := c.send(peer.(*net.TCPConn)); err != nil {
					t.Error(err)
				}
				arrived(t, sock, c.arrive)
			})
			e.hears(t, c.want)
			if c.ends {
				if err := wait(t, e.closed, name); err != io.EOF {
					t.Errorf("it ended by %v", err)
				}
			}
		})
	}
}

// sendUrgent sends a byte of urgent data, which is not among what is read.
func sendUrgent(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), []byte{'!'}, unix.MSG_OOB, nil)
		return failed != unix.EAGAIN
	})
	return errors.Join(err, failed)
}

// Sockets that were paused or had to wait for room lose nothing either.
func TestPausesAndFullSocketsLoseNothing(t *testing.T) {
	engines(t, 1, func(t *testing.T, r *rig) {
		e := newEar()
		sock, peer := accept(t, r, e)
		for range 3 {
			r.do(0, func() {
				if err := sock.Pause(); err != nil {
					t.Error(err)
				}
				_, _ = peer.Write([]byte("while paused"))
				arrived(t, sock, len("while paused"))
			})
			r.do(0, sock.Resume)
			e.hears(t, "while paused")
			n := r.flood(sock)
			r.do(0, func() { sock.NotifyWritable() })
			_ = readFull(t, peer, n)
			wait(t, e.writable, "room")
			_, _ = peer.Write([]byte("then"))
			e.hears(t, "then")
		}
	})
}
