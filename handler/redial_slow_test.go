package handler_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/freeport"
	"github.com/loopwheel/loopwheel/loop"
)

const backendVariable = "LOOPWHEEL_TEST_BACKEND"

// TestBackendProcess is no test, but the backend of another one: an echo at the address in
// backendVariable, until it is killed.
func TestBackendProcess(t *testing.T) {
	addr := os.Getenv(backendVariable)
	if addr == "" {
		t.Skip("it is run by TestRedialBackendIsKilled")
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready")
	for {
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go io.Copy(c, c)
	}
}

// startBackend runs that in a process of its own.
func startBackend(t *testing.T, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBackendProcess$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), backendVariable+"="+addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the backend says %q, %v", line, err)
	}
	return cmd
}

// load asks all the time, over a link, and keeps account of how each call ends. All of it belongs
// to the loop.
type load struct {
	t                        *testing.T
	link                     *handler.Link
	calls                    *handler.Calls[uint64]
	answered, failed, begun  int
	refused, opened, endings int
	stopped                  bool
	most                     int // refusals in a row
	row                      int
}

func (d *load) open(c *loop.Conn) loop.Handler {
	calls := handler.NewCalls[uint64](c, handler.CallLimits{Timeout: 5 * time.Second})
	d.calls = calls
	return loop.HandlerFunc(func(_ *loop.Conn, msg []byte) error {
		id := binary.BigEndian.Uint64(msg)
		if !calls.Answer(id, id) {
			d.t.Errorf("nobody asked for answer %d", id)
		}
		return nil
	})
}

func (d *load) state(c *loop.Conn, err error) {
	switch {
	case c != nil:
		d.opened++
		d.row = 0
	case errors.Is(err, syscall.ECONNREFUSED):
		d.refused++
		d.row++
		d.most = max(d.most, d.row)
	default:
		d.endings++
	}
}

// ask begins some calls, if there is a connection.
func (d *load) ask() {
	for range 20 {
		if d.link.Conn() == nil || d.stopped {
			return
		}
		ended := false
		var id uint64
		id, err := d.calls.Begin(0, func(answer uint64, err error) {
			if ended || err == nil && answer != id {
				d.t.Errorf("call %d ended twice, or with %d", id, answer)
			}
			if ended = true; err == nil {
				d.answered++
			} else {
				d.failed++
			}
		})
		if err != nil {
			return
		}
		d.begun++
		if err := d.link.Send(binary.BigEndian.AppendUint64(nil, id)); err != nil {
			return // the call fails with its connection
		}
	}
}

// A backend process is killed and started again 20 times, under load: the link backs off and comes
// back, each call ends once, with its answer or an error, and nothing is left.
func TestRedialBackendIsKilled(t *testing.T) {
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skip("it takes some seconds; to run it set LOOPWHEEL_SLOW=1, as CI does")
	}
	goroutines := runtime.NumGoroutine()
	addr := freeport.Addr(t)
	srv := &loop.Server{NumLoops: 1, BlockedAfter: 10 * time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	l, d := srv.Loops()[0], &load{t: t}
	onLoop(l, func() {
		r := handler.Redial{Addr: "tcp://" + addr, Dialer: loop.Dialer{Codec: codec.Fixed{Size: 8}}, Open: d.open, State: d.state,
			Min: 5 * time.Millisecond, Max: 80 * time.Millisecond}
		d.link = r.Start(l)
		l.Every(time.Millisecond, d.ask)
	})
	until := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			ok := false
			onLoop(l, func() { ok = f() })
			if ok {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: waited in vain; %+v", what, d)
			}
		}
	}
	for i := range 20 {
		backend := startBackend(t, addr)
		answered := 0
		until("the link comes back", func() bool { answered = d.answered; return d.link.Conn() != nil })
		until("answers", func() bool { return d.answered > answered+200 })
		_ = backend.Process.Kill()
		_ = backend.Wait()
		until("back-off", func() bool { return d.opened > i && d.endings == d.opened && d.row >= 3 })
	}
	onLoop(l, func() { d.stopped = true; d.link.Stop() })
	t.Logf("%d calls: %d answered, %d failed; %d dials refused, at most %d in a row", d.begun, d.answered, d.failed, d.refused, d.most)
	if d.begun != d.answered+d.failed || d.opened < 20 {
		t.Errorf("calls without an end: %+v", d)
	}
	cancel()
	if err := srv.Wait(); err != nil {
		t.Error(err)
	}
	if n := srv.Stats().Conns; n != 0 {
		t.Errorf("%d connections are left", n)
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutines && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
}
