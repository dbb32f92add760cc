package loop_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Shutdown waits for a job that does not heed its context, as long as its own lasts.
func TestShutdownWaitsForJobs(t *testing.T) {
	var ended atomic.Bool
	srv := &loop.Server{Drain: loop.Drain{Timeout: time.Second}, Accept: with(func(c *loop.Conn) {
		_ = loop.Offload(c, func(context.Context) int { testkit.Block(time.Minute); ended.Store(true); return 0 }, func(*loop.Conn, int) {})
	})}
	synctest.Test(t, func(t *testing.T) {
		s := looptest.Start(t, srv)
		if err := new(loop.Server).Shutdown(t.Context()); err == nil {
			t.Error("Shutdown before Start")
		}
		s.Open()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in 20 s: %v", err)
		}
		var cut *loop.DrainError
		if err := srv.Shutdown(context.Background()); !errors.As(err, &cut) || !ended.Load() {
			t.Errorf("ended %v with %v", ended.Load(), err)
		}
		_ = s.Stop()
	})
}

// blockedLog is a log that nobody reads before it is closed.
type blockedLog chan struct{}

func (w blockedLog) Write(p []byte) (int, error) { <-w; return len(p), nil }

// Wait does not wait for a log that blocks.
func TestWaitWithABlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, goOn := make(blockedLog), make(chan struct{})
		srv := &loop.Server{Logger: zerolog.New(log), Drain: loop.Drain{Timeout: time.Second}, Accept: with(func(c *loop.Conn) {
			_ = loop.Offload(c, func(context.Context) int { <-goOn; return 0 }, func(*loop.Conn, int) {})
		})}
		s := looptest.Start(t, srv)
		s.Open()
		time.AfterFunc(time.Minute, func() { close(log); close(goOn) })
		began := time.Now()
		ended, end := context.WithCancel(t.Context())
		end()
		_ = srv.Shutdown(ended)
		var cut *loop.DrainError
		if err := srv.Wait(); !errors.As(err, &cut) || time.Since(began) > 15*time.Second {
			t.Errorf("Wait returns %v after %v, want a DrainError within 15s", err, time.Since(began))
		}
		time.Sleep(2 * time.Minute)
		_ = s.Stop()
	})
}

// Without jobs it is Wait, and ends what nothing else ends.
func TestShutdownIsWait(t *testing.T) {
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: silent}
	if err := srv.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := srv.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := srv.Wait(); err != nil {
		t.Error(err)
	}
}
