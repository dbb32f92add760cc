package loop_test

import (
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/rig"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// download serves total bytes, some at a time, to who connects and says nothing.
func download(total, each int, reasons chan error) loop.Accept {
	return func(c *loop.Conn) loop.Handler {
		sent := 0
		more := func() {
			for c.Pending() == 0 && sent < total && c.Send(make([]byte, each)) == nil {
				sent += each
			}
			if sent >= total {
				c.Close()
			}
		}
		c.OnFlushed(more)
		c.Every(20*time.Millisecond, more)
		return script{Close: func(_ *loop.Conn, err error) { reasons <- err }}
	}
}

// readSlowly reads what comes, some at a time, and returns how it ended.
func readSlowly(c net.Conn, each int, pause time.Duration) (n int, err error) {
	for buf := make([]byte, each); ; time.Sleep(pause) { // as slowly as the test wants
		k, err := io.ReadFull(c, buf)
		if n += k; errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
}

// Who downloads and says nothing is idle, if input alone counts: it reads a reset then, and not an
// end that looks as if that were all. If output counts, too, it gets everything.
func TestIdleTimeoutOfADownload(t *testing.T) {
	rig.NeedPlain(t, "it counts what is in the system's buffers")
	const total = 6 << 20
	for _, counts := range []bool{false, true} {
		allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
			reasons := make(chan error, 1)
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", IdleTimeout: 300 * time.Millisecond, Timeouts: loop.Timeouts{IdleCountsOutput: counts},
				Accept: download(total, 64<<10, reasons), TCP: loop.TCPOptions{SendBuffer: 64 << 10}}
			run(srv)
			c, err := net.Dial("tcp", srv.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
			_ = c.SetDeadline(time.Now().Add(patience))
			n, err := readSlowly(c, 64<<10, 10*time.Millisecond)
			reason := receive(t, reasons, "OnClose")
			switch {
			case counts && (err != nil || n != total || reason != nil):
				t.Errorf("with output counted: %d bytes, %v; closed with %v", n, err, reason)
			case !counts && (!errors.Is(err, syscall.ECONNRESET) || n >= total || reason != loop.ErrIdle):
				t.Errorf("%d bytes, %v; closed with %v", n, err, reason)
			}
		})
	}
}

// A peer that is silent, and is owed nothing, reads an end.
func TestIdleTimeoutEnds(t *testing.T) {
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", IdleTimeout: 300 * time.Millisecond, Accept: func(*loop.Conn) loop.Handler { return script{Message: echo} }}
		run(srv)
		c := dial(t, srv.LocalAddr())
		_, _ = c.Write([]byte("hello"))
		got, err := io.ReadAll(c)
		testkit.WantErr(t, "the end", err, nil)
		testkit.Want(t, "the answer", string(got), "hello")
	})
}

// A stream whose pieces are taken at once is cut short as well. A connection that was silent both
// ways reads an end, and so does one that idle hooks have asked whether it is there. In virtual time,
// as a machine that stands still for 75 ms makes silence of a stream.
func TestIdleTimeoutCutsAndEnds(t *testing.T) {
	for _, does := range []string{"nothing", "asks", "streams"} {
		srv := &loop.Server{IdleTimeout: 300 * time.Millisecond, Accept: func(c *loop.Conn) loop.Handler {
			switch does {
			case "asks":
				c.OnIdle(loop.IdleRead, 150*time.Millisecond, func(int) { _ = c.Send([]byte("are you there?")) })
			case "streams":
				c.Every(20*time.Millisecond, func() { _ = c.Send([]byte("tick")) })
			}
			return script{Message: echo}
		}}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			p.Send("hello")
			srv.Sleep(time.Second)
			if !p.Closed() || p.Reason() != loop.ErrIdle || p.WasReset() != (does == "streams") {
				t.Errorf("a server that does %s: closed %v with %v, reset %v", does, p.Closed(), p.Reason(), p.WasReset())
			}
		})
	}
}

// The end of a peer after bytes that are not read, as reading is paused, is found by the idle
// timeout; a peer that is there is not silent.
func TestIdleTimeoutFindsAnEndBehindAPause(t *testing.T) {
	rig.NeedPlain(t, "what has been read is with TLS")
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	allEngines(t, func(t *testing.T, run func(srv *loop.Server)) {
		reasons, paused := make(chan error, 2), make(chan struct{}, 2)
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", IdleTimeout: 300 * time.Millisecond, Accept: func(c *loop.Conn) loop.Handler {
			return script{Message: func(c *loop.Conn, _ []byte) error { c.PauseRead(); paused <- struct{}{}; return nil },
				Close: func(_ *loop.Conn, err error) { reasons <- err }}
		}}
		run(srv)
		var peers []net.Conn
		for range 2 {
			c, err := net.Dial("tcp", srv.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = c.Write([]byte("pause"))
			receive(t, paused, "the message")
			_, _ = c.Write(make([]byte, 100)) // which stay in the socket
			peers = append(peers, c)
		}
		time.Sleep(900 * time.Millisecond) // three timeouts
		if len(reasons) != 0 {
			t.Fatalf("a peer that is there was evicted: %v", <-reasons)
		}
		_, _ = peers[0].Write(make([]byte, 100))
		_ = peers[0].Close()
		if err := receive(t, reasons, "OnClose"); err != loop.ErrIdle {
			t.Errorf("closed with %v", err)
		}
	})
}
