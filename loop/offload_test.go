package loop_test

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// takes returns a work that takes d, or until its connection closes, and returns s.
func takes(d time.Duration, s string) func(context.Context) string {
	return func(ctx context.Context) string {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
		return s
	}
}

// answer is a then.
func answer(c *loop.Conn, s string) { _ = c.Send([]byte(s)) }

// offloader replies to a message like "3s" when that has passed, on another goroutine.
func offloader(c *loop.Conn, msg []byte) error {
	d, err := time.ParseDuration(string(msg))
	if err != nil {
		return err
	}
	return loop.Offload(c, takes(d, string(msg)), answer)
}

func offloadServer() *loop.Server {
	return &loop.Server{
		Codec:  codec.Lines{},
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(offloader) },
	}
}

// expectOffloaded fails unless so many works run and wait.
func expectOffloaded(t *testing.T, srv *looptest.Server, running, waiting int) {
	t.Helper()
	if st := srv.Stats(); st.Offloaded != running || st.OffloadedWaiting != waiting {
		t.Errorf("%d works run and %d wait, want %d and %d", st.Offloaded, st.OffloadedWaiting, running, waiting)
	}
}

// Works of a connection follow each other, those of others run beside them, and the loop goes on
// meanwhile.
func TestOffloadOrder(t *testing.T) {
	bubble(t, offloadServer(), func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		p.Send("3s\n1s\n2s\n")
		q.Send("4s\n")
		expectOffloaded(t, srv, 2, 2)
		for _, step := range []struct {
			after time.Duration
			p, q  string
		}{
			{2999 * time.Millisecond, "", ""},
			{time.Millisecond, "3s\n", ""},
			{time.Second, "1s\n", "4s\n"},
			{1999 * time.Millisecond, "", ""},
			{time.Millisecond, "2s\n", ""},
		} {
			wait(step.after)
			if p, q := p.Received(), q.Received(); p != step.p || q != step.q {
				t.Errorf("after %v more: %q and %q, want %q and %q", step.after, p, q, step.p, step.q)
			}
		}
		expectOffloaded(t, srv, 0, 0)
		if st := srv.Stats(); st.MaxTurn != 0 {
			t.Errorf("a loop was busy for %v", st.MaxTurn)
		}
	})
}

// Connections take turns at the workers: one with many works does not keep out another.
func TestOffloadTakesTurns(t *testing.T) {
	srv := offloadServer()
	srv.Limits.MaxOffload = 1
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		p.Send(strings.Repeat("1s\n", 100))
		q.Send("1s\n1s\n")
		expectOffloaded(t, srv, 1, 17) // of p's no more are read for now
		wait(4 * time.Second)
		if p, q := p.Received(), q.Received(); p != "1s\n1s\n" || q != "1s\n1s\n" {
			t.Errorf("after 4 s %q and %q", p, q)
		}
		p.Reset()
		expectOffloaded(t, srv, 0, 0)
	})
}

// A connection gets no more room than it leaves to others, and never more than 1,024.
func TestOffloadLimits(t *testing.T) {
	const waiting = 1024
	srv := offloadServer()
	srv.Limits.MaxOffload = 2
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		p.Send(strings.Repeat("1s\n", 1))
		tell(srv, p, func(c *loop.Conn) {
			for i := range waiting {
				if err := loop.Offload(c, takes(time.Second, ""), answer); err != nil {
					t.Errorf("work %d: %v", i, err)
				}
			}
			if err := loop.Offload(c, takes(time.Second, ""), answer); !errors.Is(err, loop.ErrOffloadFull) {
				t.Errorf("one work too many: %v", err)
			}
		})
		q.Send("1s\n1s\n")
		if err := q.Reason(); err != nil {
			t.Errorf("the other connection: %v", err)
		}
		p.Reset()
		expectOffloaded(t, srv, 1, 1)
	})
}

// Jobs do not hold back the datagrams of a UDP session, which would be lost.
func TestOffloadOfDatagrams(t *testing.T) {
	srv := offloadServer()
	srv.Addr, srv.Codec = "udp://127.0.0.1:0", nil
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.OpenUDP(0)
		for range 60 {
			p.Send("1s")
		}
		srv.Sleep(time.Minute)
		testkit.Want(t, "answers", len(p.Received()), 60)
		testkit.Want(t, "lost", srv.Stats().Lost, 0)
	})
}

// When a connection closes, the contexts of its jobs end, no then runs, and no job begins.
func TestOffloadAndClose(t *testing.T) {
	for name, end := range map[string]func(*loop.Conn){
		"Close":          (*loop.Conn).Close,
		"CloseWithError": func(c *loop.Conn) { c.CloseWithError(io.ErrNoProgress) },
		"flushing":       func(c *loop.Conn) { _ = c.Send([]byte("x")); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &loop.Server{Limits: loop.Limits{MaxOffload: 1}}, func(t *testing.T, srv *looptest.Server) {
				p, log := srv.Open(), newJournal()
				then := func(*loop.Conn, error) { log.at("then") }
				p.Block(0)
				tell(srv, p, func(c *loop.Conn) {
					for range 2 {
						_ = loop.Offload(c, func(ctx context.Context) error {
							log.at("work")
							<-ctx.Done()
							log.at("told")
							return ctx.Err()
						}, then)
					}
				})
				wait(time.Second)
				tell(srv, p, func(c *loop.Conn) {
					end(c)
					if err := loop.Offload(c, func(context.Context) error { log.at("late"); return nil }, then); err != loop.ErrClosed {
						t.Errorf("Offload after Close: %v", err)
					}
				})
				wait(time.Minute)
				log.expect(t, "0s work", "1s told")
				expectOffloaded(t, srv, 0, 0)
			})
		})
	}
}

// The works of a connection that closes leave the queue at once, though all workers are busy.
func TestOffloadQueueAfterClose(t *testing.T) {
	srv := offloadServer()
	srv.Limits.MaxOffload = 1
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p, q := srv.Open(), srv.Open()
		q.Send("10s\n")
		p.Send("1s\n1s\n")
		expectOffloaded(t, srv, 1, 2)
		p.Reset()
		expectOffloaded(t, srv, 1, 0)
		wait(10 * time.Second)
		if got := q.Received(); got != "10s\n" {
			t.Errorf("the other connection got %q", got)
		}
	})
}

// A work that is over just before its connection closes: its then waits for the loop, and must not
// run.
func TestOffloadThenAfterClose(t *testing.T) {
	bubble(t, offloadServer(), func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		ran := false
		tell(srv, p, func(c *loop.Conn) {
			_ = loop.Offload(c, takes(time.Second, ""), func(*loop.Conn, string) { ran = true })
			_ = c.Loop().AfterFunc(999*time.Millisecond, func() { testkit.Block(time.Second); c.Close() })
		})
		wait(time.Minute)
		if ran || !p.Ended() {
			t.Errorf("then ran: %v; closed: %v", ran, p.Ended())
		}
	})
}

func TestOffloadPanics(t *testing.T) {
	boom := func(context.Context) int { panic("boom in work") }
	exit := func(context.Context) int { runtime.Goexit(); return 0 }
	fine := func(context.Context) int { return 1 }
	for name, test := range map[string]struct {
		work  func(context.Context) int
		then  func(*loop.Conn, int)
		value any
		stack string
	}{
		"work":   {boom, func(*loop.Conn, int) { t.Error("then ran") }, "boom in work", "TestOffloadPanics.func1"},
		"then":   {fine, func(*loop.Conn, int) { panic("boom in then") }, "boom in then", "TestOffloadPanics"},
		"Goexit": {exit, func(*loop.Conn, int) { t.Error("then ran") }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(logBuffer)
			srv := offloadServer()
			srv.Logger, srv.Limits.MaxOffload = zerolog.New(log), 1
			bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
				p, q := srv.Open(), srv.Open()
				tell(srv, p, func(c *loop.Conn) {
					_ = loop.Offload(c, test.work, test.then)
					_ = loop.Offload(c, fine, func(*loop.Conn, int) { t.Error("the second then ran") })
				})
				wait(time.Second)
				var err *loop.PanicError
				if !errors.As(p.Reason(), &err) || test.value != nil && err.Value != test.value || !strings.Contains(string(err.Stack), test.stack) {
					t.Fatalf("closed with %v", p.Reason())
				}
				if lines := log.lines(t); len(lines) != 1 || !strings.Contains(lines[0].Stack, test.stack) {
					t.Errorf("the log has %v", lines)
				}
				if n := srv.Stats().Panics; n != 1 {
					t.Errorf("%d panics counted", n)
				}
				q.Send("1s\n")
				wait(time.Second)
				if got := q.Received(); got != "1s\n" {
					t.Errorf("another connection got %q", got)
				}
			})
		})
	}
}

// A panic of a work whose connection is closed already still shows.
func TestOffloadPanicAfterClose(t *testing.T) {
	log := new(logBuffer)
	bubble(t, &loop.Server{Logger: zerolog.New(log)}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			_ = loop.Offload(c, func(ctx context.Context) int { <-ctx.Done(); panic("late") }, func(*loop.Conn, int) {})
		})
		p.Reset()
		if lines := log.lines(t); len(lines) != 1 || srv.Stats().Panics != 1 || p.Reason() == nil {
			t.Errorf("%v, %d panics, reason %v", lines, srv.Stats().Panics, p.Reason())
		}
	})
}

func TestOffloadNil(t *testing.T) {
	bubble(t, &loop.Server{}, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		tell(srv, p, func(c *loop.Conn) {
			mustPanicWith(t, "Offload with a nil func", func() { _ = loop.Offload(c, nil, answer) })
			mustPanicWith(t, "Offload with a nil func", func() { _ = loop.Offload(c, takes(0, ""), nil) })
		})
	})
}

// In Accept, too; if that refuses, nothing comes of it.
func TestOffloadInAccept(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		srv := &loop.Server{Accept: func(c *loop.Conn) loop.Handler {
			_ = loop.Offload(c, takes(time.Second, "hello"), answer)
			if refuse {
				return nil
			}
			return script{}
		}}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			p := srv.Open()
			wait(time.Second)
			if got := p.Received(); got != "hello" && !refuse || got != "" && refuse {
				t.Errorf("refused %v, received %q", refuse, got)
			}
			expectOffloaded(t, srv, 0, 0)
		})
	}
}

// The buffer of a file that nobody has begun to read does not count any more when its connection
// has closed.
func TestSendFileBehindJobs(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	srv := &loop.Server{Limits: loop.Limits{MaxOffload: 1}, Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(offloader) }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.Send("1h\n")
		for range 10 {
			q := srv.Open()
			tell(srv, q, func(c *loop.Conn) {
				if err := c.SendFile(file, 0, 1<<20, nil); err != nil {
					t.Errorf("SendFile: %v, want nil", err)
				}
			})
			q.Reset()
		}
		wait(2 * time.Hour)
		p.Close()
		if got := srv.Stats().Buffered; got > 256<<10 {
			t.Errorf("buffers of %d bytes count, want at most those that a loop keeps", got)
		}
	})
}
