package loop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// The drain waits for works, and for what their thens offload; what comes in meanwhile is not
// served.
func TestDrainWaitsForJobs(t *testing.T) {
	bubble(t, offloadServer(), func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		p.Send("3s\n2s\n")
		tell(srv, q, func(c *loop.Conn) {
			_ = loop.Offload(c, takes(time.Second, "a"), func(c *loop.Conn, s string) {
				c.PauseRead()
				c.ResumeRead()
				_ = loop.Offload(c, takes(time.Second, s+"b"), answer)
			})
		})
		idle, began := srv.Open(), time.Now()
		srv.Shutdown()
		if !errors.Is(idle.Reason(), loop.ErrServerClosed) || p.Ended() {
			t.Errorf("without works: %v; with works: ended %v", idle.Reason(), p.Ended())
		}
		p.Send("0s\n")
		q.Send("0s\n")
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("the drain took %v, want 5 s, and at most one for the peers to close", d)
		}
		if p, q := p.Received(), q.Received(); p != "3s\n2s\n" || q != "ab\n" {
			t.Errorf("received %q and %q", p, q)
		}
		if !errors.Is(p.Reason(), loop.ErrServerClosed) || !errors.Is(q.Reason(), loop.ErrServerClosed) {
			t.Errorf("closed with %v and %v", p.Reason(), q.Reason())
		}
	})
}

// At the drain timeout the contexts of jobs end, and jobs get some time; those that do not return
// are abandoned, and logged.
func TestDrainTimeoutCutsJobs(t *testing.T) {
	for _, test := range []struct {
		name     string
		deaf     time.Duration // how long the work takes, told or not
		duration time.Duration
		left     int
	}{
		{"that listen", 0, 30 * time.Second, 0},
		{"that are deaf for a while", 33 * time.Second, 33 * time.Second, 0},
		{"that are deaf", time.Hour, 35 * time.Second, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(logBuffer)
				srv := looptest.Start(t, &loop.Server{Accept: silent, NumLoops: 1, Logger: zerolog.New(log)})
				p := srv.Open()
				tell(srv, p, func(c *loop.Conn) {
					_ = loop.Offload(c, func(ctx context.Context) string {
						testkit.Block(test.deaf)
						<-ctx.Done()
						return ""
					}, answer)
				})
				began := time.Now()
				err := srv.Stop()
				var cut *loop.DrainError
				if !errors.As(err, &cut) || cut.Cut != 1 {
					t.Errorf("Wait returned %v", err)
				}
				if d := time.Since(began); d != test.duration {
					t.Errorf("Wait took %v, want %v", d, test.duration)
				}
				if lines := log.lines(t); len(lines) != test.left {
					t.Errorf("the log has %v", lines)
				}
				wait(2 * time.Hour)
			})
		})
	}
}

// Everything at once, with the race detector: thens run in order on the loop, and works are dropped
// or run once.
func TestOffloadStress(t *testing.T) {
	const conns, works = 50, 200
	var ran, thens atomic.Int64
	var wg sync.WaitGroup
	addr := start(t, &loop.Server{Limits: loop.Limits{MaxOffload: 7}, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		next := 0
		return loop.HandlerFunc(func(c *loop.Conn, msg []byte) error {
			last := map[string]int{"all": works, "half": works / 2}[string(msg)]
			for i := range works {
				if err := loop.Offload(c, func(context.Context) int { ran.Add(1); return i }, func(c *loop.Conn, v int) {
					thens.Add(1)
					if v != next {
						t.Errorf("then %d ran, want %d", v, next)
					}
					if next++; next == last {
						c.Close()
					}
				}); err != nil {
					t.Error(err)
				}
			}
			return nil
		})
	}})
	for i := range conns {
		wg.Go(func() {
			c := dial(t, addr)
			fmt.Fprintln(c, []string{"all", "half"}[i%2])
			_, _ = io.Copy(io.Discard, c)
		})
	}
	wg.Wait()
	if n := thens.Load(); n != conns*works*3/4 || ran.Load() < n {
		t.Errorf("%d works and %d thens ran, want at least, and exactly, %d", ran.Load(), n, conns*works*3/4)
	}
}
