package loop_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// Each figure of LoopStats is what was done, no more and no less.
func TestLoopStatsOfAKnownLoad(t *testing.T) {
	const ms = time.Millisecond
	srv := &loop.Server{Codec: codec.Lines{}, IdleTimeout: time.Hour, Limits: loop.Limits{HoldBackAt: 10}, Debug: loop.Debug{BlockedAfter: 100 * ms},
		Accept: func(*loop.Conn) loop.Handler { return dawdler{} }}
	bubble(t, srv, func(t *testing.T, srv *looptest.Server) {
		idle, talker, deaf := srv.Open(), srv.Open(), srv.Open()
		began := time.Now()
		srv.Do(0, func(l *loop.Loop) {
			l.AfterFunc(20*ms, func() {})  // while the talker's message blocks the loop: 30 ms late
			l.AfterFunc(500*ms, func() {}) // in time
			l.AfterFunc(time.Hour, func() {})
		})
		wait(10 * ms)
		talker.Send("40ms\n") // until 50 ms
		wait(100 * ms)
		talker.Send("0\n", "200ms\n") // from 110 ms to 310 ms, of which a post waits for 150 ms
		wait(50 * ms)
		unpolled := srv.Loops()[0].Measured().Unpolled // the watchdog's probe has waited for half of that
		_ = srv.Loops()[0].Post(func() { testkit.Block(5 * ms) })
		wait(time.Second)
		deaf.Block(0)
		srv.Do(0, func(l *loop.Loop) {
			for c := range l.Conns() {
				if c.RemoteAddr() == deaf.Addr() {
					_ = c.Send([]byte("twelve bytes"))
				}
			}
		})
		deaf.Send("0\n")
		idle.Close()
		within := statsWithPosts(srv, 7)
		wait(time.Second)
		deaf.Unblock()
		wait(ms)
		got, slowTurns, measured := srv.Stats().Loops[0], srv.Loops()[0].SlowTurns(), srv.Loops()[0].Measured()
		if within.Mailbox != 8 || got.Mailbox != 0 {
			t.Errorf("the mailbox has %d functions, later %d; want 7, the one that runs, and none", within.Mailbox, got.Mailbox)
		}
		if measured.Unpolled != 0 || unpolled != 25*ms {
			t.Errorf("it has not polled for %v, and %v within the callback; want 0 and 25ms", measured.Unpolled, unpolled)
		}
		got.Mailbox, got.Moved = within.Mailbox, 1 // nothing can move; all figures are other than zero now
		for name, v := range reflect.ValueOf(got).Fields() {
			if v.IsZero() {
				t.Errorf("%s is left out: %+v", name.Name, got)
			}
		}
		if n := total(&measured.Turns); measured.Turns.Sum != got.Busy || n < 10 {
			t.Errorf("%d turns took %v, want %v", n, measured.Turns.Sum, got.Busy)
		}
		buckets := func(s *meter.Series, longerThan time.Duration) (n uint64) {
			for i, count := range s.Counts[1:] {
				if meter.Bound(i) > longerThan {
					n += count
				}
			}
			return n
		}
		if n := buckets(&measured.Turns, 4*ms); n != 3 { // 5, 40 and 200 ms
			t.Errorf("%d turns took more than 4 ms: %v", n, measured.Turns)
		}
		if n := total(&measured.Late); n != 2 || measured.Late.Sum != 30*ms {
			t.Errorf("%d timers were late by %v", n, measured.Late.Sum)
		}
		if buckets(&measured.Waited, ms) != 1 || measured.Waited.Sum != 150*ms {
			t.Errorf("posts have waited for %v: %v", measured.Waited.Sum, measured.Waited)
		}
		if n := len(slowTurns); n != 3 {
			t.Fatalf("%d slow turns: %v", n, slowTurns)
		}
		for i, want := range []inside.SlowTurn{
			{Began: began.Add(110 * ms), Took: 200 * ms, Conn: 2, Handler: "loop_test.dawdler", Work: "message"},
			{Began: began.Add(10 * ms), Took: 40 * ms, Conn: 2, Handler: "loop_test.dawdler", Work: "message"},
			{Began: began.Add(310 * ms), Took: 5 * ms, Conn: 0, Handler: "", Work: "post"},
		} {
			if s := slowTurns[i]; !s.Began.Equal(want.Began) || s.Took != want.Took || s.Conn != want.Conn || !strings.HasSuffix(s.Handler, want.Handler) || s.Work != want.Work {
				t.Errorf("slow turn %+v, want %+v", s, want)
			}
		}
		if buckets(&measured.Ready, 16*ms) != 2 || measured.Ready.Sum > 205*ms { // 25 of 40 ms, and 175 of 200; and 5 of 5, perhaps
			t.Errorf("probes have waited for %v: %v", measured.Ready.Sum, measured.Ready)
		}
		if got.Buffered == 0 {
			t.Error("no bytes are buffered")
		}
		got.Buffered, got.Moved = 0, 0
		if want := (loop.LoopStats{
			Conns: 2, Messages: 4, BytesIn: uint64(len("40ms\n0\n200ms\n0\n")), BytesOut: uint64(len("twelve bytes\n")),
			Timers: 3 /* two idle timeouts, one of an hour */, Fired: 2, Mailbox: 8, HeldBack: 1,
			Lag: 150 * ms, MaxLag: 150 * ms, Turn: 200 * ms, MaxTurn: 200 * ms, Busy: 245 * ms, Blocked: 1,
			SocketWait: 175 * ms, MaxSocketWait: 175 * ms,
		}); !reflect.DeepEqual(got, want) {
			t.Errorf("\n%+v, want\n%+v", got, want)
		}
	})
}

// statsWithPosts returns the numbers of a loop in whose mailbox n functions wait.
func statsWithPosts(srv *looptest.Server, n int) (within loop.LoopStats) {
	srv.Do(0, func(l *loop.Loop) {
		for range n {
			_ = l.Post(func() {})
		}
		within = srv.Stats().Loops[0]
	})
	return within
}

// silentDevices is a server whose connections have what silent devices have: a time for the first
// byte, which is over as they say something at once, one for a frame, a timer for the login, which
// is stopped, and a ping after each period of silence.
func silentDevices(period time.Duration, ping func()) *loop.Server {
	return &loop.Server{
		Codec: codec.Lines{}, Timeouts: loop.Timeouts{FirstByte: period / 6, Frame: period / 3}, IdleTimeout: 10 * period,
		Accept: func(c *loop.Conn) loop.Handler {
			login := c.AfterFunc(period/3, c.Close)
			c.OnIdle(loop.IdleRead, period, func(int) { ping() })
			return loop.HandlerFunc(func(*loop.Conn, []byte) error {
				login.Stop()
				return nil
			})
		},
	}
}

// A loop that does everything in time has no lag, whatever its wheel has to do for timers that were
// stopped or moved.
func TestNoLagOfSilentDevices(t *testing.T) {
	pings := 0
	bubble(t, silentDevices(30*time.Second, func() { pings++ }), func(t *testing.T, srv *looptest.Server) {
		for range 300 {
			srv.Open().Send("hello\n")
			wait(7 * time.Millisecond)
		}
		for range 8 {
			wait(10 * time.Second)
			if st := srv.Stats(); st.MaxLag != 0 {
				t.Fatalf("a lag of %v", st.MaxLag)
			}
			srv.Do(0, func(l *loop.Loop) {
				if away := l.Away(); away != 0 {
					t.Fatalf("away for %v", away)
				}
			})
		}
		if pings != 600 {
			t.Errorf("%d pings, want 600", pings)
		}
	})
}
