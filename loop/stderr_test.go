package loop_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/loop"
)

// A server without a Logger writes errors, such as a panic in Accept, to os.Stderr, and nothing
// else. zerolog.Nop() silences it.
func TestErrorsGoToStderr(t *testing.T) {
	said := func(t *testing.T, logger zerolog.Logger) string {
		file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		before := os.Stderr
		os.Stderr = file
		defer func() { os.Stderr = before }()
		accepted := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Logger: logger, Accept: func(c *loop.Conn) loop.Handler {
			defer close(accepted)
			c.OnIdle(loop.IdleRead, 0, func(int) {})
			return script{}
		}}
		if err := srv.Start(ctx); err != nil {
			t.Fatal(err)
		}
		c, err := net.DialTimeout("tcp", srv.LocalAddr().String(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		receive(t, accepted, "Accept")
		cancel()
		if err := srv.Wait(); err != nil {
			t.Error(err)
		}
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := said(t, zerolog.Logger{}); !strings.Contains(got, "OnIdle") || !strings.Contains(got, `"level":"error"`) || strings.Contains(got, `"level":"info"`) {
		t.Errorf("written to os.Stderr: %q", got)
	}
	if got := said(t, zerolog.Nop()); got != "" {
		t.Errorf("a logger that is silent: %q", got)
	}
}
