package loop_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// resetByPeer returns a connection whose peer has reset it after it sent something, as somebody who
// was given its descriptor has it: without an address of the peer.
func resetByPeer(t *testing.T, last string) net.Conn {
	t.Helper()
	here, there := tcpPair(t)
	if _, err := there.Write([]byte(last)); err != nil {
		t.Fatal(err)
	}
	_ = there.(*net.TCPConn).SetLinger(0)
	_ = there.Close()
	f, err := here.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_ = here.Close()
	var nc net.Conn
	testkit.Eventually(t, "the reset comes", func() bool {
		if nc, err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		if nc.RemoteAddr() == nil {
			return true
		}
		_ = nc.Close()
		return false
	})
	return nc
}

// A connection whose peer has reset it is no way to end the process: Adopt refuses it, and one that
// is moving closes with the reset.
func TestPeerHasGoneBefore(t *testing.T) {
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		closed, msgs := make(chan error, 1), make(chan string, 1)
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Accept: func(*loop.Conn) loop.Handler {
			return script{
				Message: func(_ *loop.Conn, msg []byte) error { msgs <- string(msg); return nil },
				Close:   func(_ *loop.Conn, err error) { closed <- err },
			}
		}}
		run(srv)
		nc := resetByPeer(t, "")
		if err := srv.Adopt(nc, nil, loop.Listener{}); err == nil {
			t.Error("Adopt takes it")
		}
		_ = nc.Close()
		for range 3 {
			nc := resetByPeer(t, "last words")
			err := srv.MoveIn(&inside.Moved{Net: nc, Kind: inside.Kind{Addr: srv.Addr}, Local: nc.LocalAddr(), Remote: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7},
				LastRead: -1, LastWrite: -1, IdleTimeout: -1})
			if err != nil {
				t.Fatal(err)
			}
			if err := receive(t, closed, "OnClose"); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("OnClose got %v, want a reset", err)
			}
			select {
			case <-msgs: // Linux keeps what came before
			default:
			}
		}
		other := dial(t, srv.LocalAddr())
		_, _ = other.Write([]byte("x"))
		receive(t, msgs, "a message of another")
	})
}

// A peer that has closed altogether, and is sent something after its end, does not keep its
// connection open.
func TestPeerClosesBeforeOnEOFSends(t *testing.T) {
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		closed := make(chan error, 1)
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Accept: func(c *loop.Conn) loop.Handler {
			c.OnEOF(func() {
				_ = c.Send([]byte("one"))
				c.AfterFunc(50*time.Millisecond, func() { _ = c.Send([]byte("two")) })
			})
			return script{Close: func(_ *loop.Conn, err error) { closed <- err }}
		}}
		run(srv)
		_ = dial(t, srv.LocalAddr()).Close()
		if err := receive(t, closed, "OnClose"); err == nil {
			t.Error("OnClose got nil, want an error")
		}
	})
}
