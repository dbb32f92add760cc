package realtest_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
)

// busyChild is a server whose loop is nearly always in a turn of 20 ms. It answers with the number
// of turns that were taken for blocked.
func busyChild() {
	var srv *loop.Server
	srv = &loop.Server{
		Addr:     "tcp://127.0.0.1:0",
		NumLoops: 1,
		// A busy machine takes its processor away for longer than the default.
		Debug:  loop.Debug{BlockedAfter: 700 * time.Millisecond},
		Logger: zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
		OnStart: func(l *loop.Loop) {
			l.Every(21*time.Millisecond, func() {
				for began := time.Now(); time.Since(began) < 20*time.Millisecond; {
				}
			})
		},
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, _ []byte) error {
				return c.Send(fmt.Appendf(nil, "%4d", srv.Stats().Blocked))
			})
		},
	}
	serveChild(srv)
}

// A process that is stopped for a while blocks its loops, but no callback does: there is nothing to
// report.
func TestStoppedProcessIsNotBlocked(t *testing.T) {
	needSlow(t, "it stops a process several times")
	c := startChild(t, "busy")
	for range 3 {
		for _, sig := range []os.Signal{stopProcess, continueProcess} {
			if err := c.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
		}
	}
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "?")
	var answer [4]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil || string(answer[:]) != "   0" {
		t.Errorf("turns that were taken for blocked: %q, %v", answer, err)
	}
}
