package loop_test

import (
	"context"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// numbers takes descriptors when a connection is refused.
type numbers struct{ pipes [][2]*os.File }

func (n *numbers) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "connection refused") {
		for range 8 {
			if r, w, err := os.Pipe(); err == nil {
				n.pipes = append(n.pipes, [2]*os.File{r, w})
			}
		}
	}
	return len(line), nil
}

// A socket whose Accept ends the goroutine of its loop is closed once: its number may be another
// file's by the time when the rest is cleaned up.
func TestGoexitInAcceptClosesOnce(t *testing.T) {
	var files numbers
	srv := &loop.Server{
		Addr:     "unix://" + testkit.SocketPath(t),
		NumLoops: 1,
		Logger:   zerolog.New(zerolog.SyncWriter(&files)),
		Accept:   func(*loop.Conn) loop.Handler { runtime.Goexit(); return nil },
	}
	if err := srv.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := srv.Wait(); err == nil || !strings.Contains(err.Error(), "Goexit") {
		t.Errorf("Wait: %v", err)
	}
	for _, p := range files.pipes {
		if _, err := p[1].Write([]byte{1}); err != nil {
			t.Error("another's file was closed: ", err)
		}
		_, _ = p[0].Close(), p[1].Close()
	}
	if len(files.pipes) == 0 && testhook.DefaultEngine() != "net" {
		t.Error("the connection was not refused")
	}
}
