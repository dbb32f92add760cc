package loop_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// No time is none, whatever is spread.
func TestJitterOfNoTimeout(t *testing.T) {
	srv := &loop.Server{IdleTimeout: time.Minute, Timeouts: loop.Timeouts{IdleJitter: time.Hour}, Accept: with(func(c *loop.Conn) { c.SetIdleTimeout(0) })}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		if srv.Sleep(100 * time.Hour); p.Ended() {
			t.Errorf("closed with %v", p.Reason())
		}
	})
}

// What is written late in a long turn counts from then on for all hooks that writing matters to,
// and only for those.
func TestIdleHooksInALongTurn(t *testing.T) {
	for kind, want := range map[loop.Idle]string{
		loop.IdleWrite: "3s silent", loop.IdleBoth: "3s silent", loop.IdleRead: "2s silent",
	} {
		j := newJournal()
		srv := &loop.Server{Accept: with(func(c *loop.Conn) {
			c.OnIdle(kind, 2*time.Second, func(n int) {
				if n == 1 {
					j.at("silent")
				}
			})
		})}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			j.began = time.Now()
			p := srv.Open()
			tell(srv, p, func(c *loop.Conn) {
				testkit.Block(time.Second)
				_ = c.Send([]byte("x"))
			})
			srv.Sleep(2500 * time.Millisecond)
			j.expect(t, want)
		})
	}
}

// A hook whose time is changed counts from the last activity: one that is over by then fires at
// once, unless it has fired already since.
func TestHookThatIsMadeShorter(t *testing.T) {
	for _, fired := range []bool{false, true} {
		j := newJournal()
		var hook loop.Timer
		d, want := 10*time.Second, []string{"5s silent", "7s silent"}
		if fired {
			d, want = 4*time.Second, []string{"4s silent", "7s silent"}
		}
		srv := &loop.Server{Accept: with(func(c *loop.Conn) {
			hook = c.OnIdle(loop.IdleRead, d, func(int) { j.at("silent") })
		})}
		bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
			j.began = time.Now()
			p := srv.Open()
			srv.Sleep(5 * time.Second)
			tell(srv, p, func(*loop.Conn) { hook.Reset(2 * time.Second) })
			srv.Sleep(3 * time.Second)
			j.expect(t, want...)
		})
	}
}

// Drain.Delay is as long as somebody is there, or may come.
func TestDrainDelayEnds(t *testing.T) {
	const delay = 10 * time.Second
	for name, c := range map[string]struct {
		accept, open bool
		least, most  time.Duration
	}{
		"nobody is there":                 {false, false, 0, time.Second},
		"nobody is there, and some may":   {true, false, delay, delay + time.Second},
		"somebody is there":               {false, true, delay, delay + 3*time.Second},
		"somebody is there, and some may": {true, true, delay, delay + 3*time.Second},
	} {
		bubble(t, &loop.Server{Drain: loop.Drain{Delay: delay, KeepAccepting: c.accept}}, func(t *testing.T, srv *looptest.Server) {
			if c.open {
				srv.Open()
			}
			began := time.Now()
			if err := srv.Stop(); err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d < c.least || d > c.most {
				t.Errorf("%s: the end took %v", name, d)
			}
		})
	}
}

// OnEOF is called once, and what happens to the input then neither repeats it nor closes.
func TestOnEOFOnce(t *testing.T) {
	ends := 0
	srv := &loop.Server{Accept: with(func(c *loop.Conn) { c.OnEOF(func() { ends++ }) })}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		p := srv.Open()
		p.CloseWrite()
		for range 3 {
			tell(srv, p, (*loop.Conn).PauseRead)
			tell(srv, p, (*loop.Conn).ResumeRead)
		}
		if ends != 1 || p.Ended() {
			t.Errorf("told %d times; ended: %v, with %v", ends, p.Ended(), p.Reason())
		}
	})
}

// Large messages that the socket takes a part of arrive whole: plain frames, of which it may take a
// part of the header, others, and bytes.
func TestLargeMessagesInParts(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789"), 10_000)
	for name, cd := range map[string]codec.Codec{"plain": codec.Length{Max: 1 << 20}, "other": codec.Length{Size: 8, Max: 1 << 20}, "bytes": nil} {
		for _, room := range []int{0, 1, 4, 5, 70_000, 99_999, 100_000, 100_003, 100_004, 100_007, 100_008} {
			bubble(t, &loop.Server{Codec: cd}, func(t *testing.T, srv *looptest.Server) {
				p := srv.Open()
				p.Block(room)
				want := large
				tell(srv, p, func(c *loop.Conn) {
					if cd == nil {
						_, _ = c.Write(large)
					} else {
						_ = c.Send(large)
						want, _ = cd.AppendFrame(nil, large)
					}
					if n := c.Pending(); n != max(0, len(want)-room) && n != len(want) {
						t.Errorf("%s: %d bytes wait", name, n)
					}
				})
				p.Unblock()
				srv.Sleep(0)
				if got := p.Received(); got != string(want) || srv.Stats().BytesOut != uint64(len(want)) {
					t.Errorf("%s: room for %d: %d bytes arrived, want %d; %d counted", name, room, len(got), len(want), srv.Stats().BytesOut)
				}
			})
		}
	}
}

// Two or more loops are counted together, and what a UDP server has lost.
func TestStatsOfAll(t *testing.T) {
	srv := &loop.Server{NumLoops: 2, Accept: accepting(nil, echo),
		Listeners: []loop.Listener{{Addr: "udp://127.0.0.1:0", Accept: with((*loop.Conn).PauseRead)}}}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		for range 4 {
			srv.Open().Send("12345")
		}
		u := srv.OpenUDP(1)
		u.Send("accepted", "lost", "lost") // reading is paused, which loses the first one, too
		st := srv.Stats()
		var in, out uint64
		for _, l := range st.Loops {
			in, out = in+l.BytesIn, out+l.BytesOut
		}
		if st.BytesOut != 20 || out != 20 || st.BytesIn != 20+16 || in != st.BytesIn || st.Lost != 3 {
			t.Errorf("%d bytes in, %d out, of the loops %d and %d; %d lost", st.BytesIn, st.BytesOut, in, out, st.Lost)
		}
	})
}

// What says that a callback has ended the goroutine of its loop, or of a job.
func TestGoexitIsTold(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s, err := looptest.TryStart(t, &loop.Server{NumLoops: 1, Accept: silent, Logger: zerolog.New(&log)})
		if err != nil {
			t.Fatal(err)
		}
		var panicked *loop.PanicError
		p := s.Open()
		tell(s, p, func(c *loop.Conn) {
			_ = loop.Offload(c, func(context.Context) int { runtime.Goexit(); return 0 }, func(*loop.Conn, int) {})
		})
		s.Sleep(0)
		if !errors.As(p.Reason(), &panicked) || !strings.Contains(p.Reason().Error(), "runtime.Goexit") {
			t.Errorf("a job: closed with %v", p.Reason())
		}
		_ = s.Loops()[0].Post(runtime.Goexit)
		_ = s.Stop()
		if !strings.Contains(log.String(), "a callback ended the goroutine of its loop") {
			t.Errorf("logged %s", &log)
		}
	})
}
