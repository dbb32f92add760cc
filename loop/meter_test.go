package loop_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// logBuffer collects what a server logs.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// logLine is what the watchdog writes.
type logLine struct {
	Message    string
	Stack      string
	Loop       int
	Conn       uint64
	Work       string
	For        float64
	Took       float64
	Unreported int
}

// lines returns what was logged since the last call.
func (b *logBuffer) lines(t *testing.T) (lines []logLine) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range bytes.Lines(b.buf.Bytes()) {
		var l logLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		lines = append(lines, l)
	}
	b.buf.Reset()
	return lines
}

// sleeper is a handler that blocks for as long as the message says.
func sleeper(_ *loop.Conn, msg []byte) error {
	d, err := time.ParseDuration(string(msg))
	time.Sleep(d)
	return err
}

func startSleeper(t *testing.T, loops int) (*looptest.Server, *logBuffer) {
	log := new(logBuffer)
	return looptest.Start(t, &loop.Server{
		NumLoops: loops,
		Codec:    codec.Lines{},
		Accept:   func(*loop.Conn) loop.Handler { return loop.HandlerFunc(sleeper) },
		Logger:   zerolog.New(log),
	}), log
}

func TestBlockedLoopIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, log := startSleeper(t, 2)
		srv.Open()
		p := srv.Open()
		time.Sleep(time.Hour)
		p.Send("1s\n")
		time.Sleep(99 * time.Millisecond)
		if lines := log.lines(t); len(lines) > 0 || srv.Stats().Blocked > 0 {
			t.Fatalf("reported early: %v", lines)
		}
		time.Sleep(27 * time.Millisecond)
		lines := log.lines(t)
		if len(lines) != 1 || lines[0].Loop != 1 || !strings.Contains(lines[0].Stack, "loop_test.sleeper") || lines[0].For < 100 ||
			lines[0].Conn != 2 || lines[0].Work != "message" {
			t.Fatalf("within 126 ms the log has %v", lines)
		}
		st := srv.Stats()
		if st.Blocked != 1 || st.Loops[1].Blocked != 1 || st.Loops[1].Turn != 126*time.Millisecond || st.Loops[1].Busy != st.Turn {
			t.Errorf("while it blocks: %+v", st)
		}
		time.Sleep(time.Second)
		lines = log.lines(t)
		if len(lines) != 1 || lines[0].Loop != 1 || lines[0].Took != 1000 || lines[0].Stack != "" || lines[0].Conn != 2 {
			t.Errorf("when it is over the log has %v", lines)
		}
		if st := srv.Stats(); st.Blocked != 1 || st.MaxTurn != time.Second || st.Loops[1].Busy != time.Second || st.Loops[0].MaxTurn != 0 {
			t.Errorf("when it is over: %+v", st)
		}
		time.Sleep(time.Minute)
		if st := srv.Stats(); st.Turn != 0 || st.MaxTurn != time.Second {
			t.Errorf("a minute later the longest turn was %v, ever %v", st.Turn, st.MaxTurn)
		}
	})
}

// Turns that follow each other at once are not taken for one.
func TestTurnAfterTurnIsNotBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, log := startSleeper(t, 1)
		p, q := srv.Open(), srv.Open()
		resume := srv.Stall(0)
		p.Send("99ms\n", "0s\n")
		q.Send("99ms\n")
		resume()
		p.Send("99ms\n")
		time.Sleep(time.Second)
		if lines := log.lines(t); len(lines) > 0 || srv.Stats().Blocked > 0 {
			t.Errorf("reported: %v", lines)
		}
		if st := srv.Stats(); st.Loops[0].Busy != 297*time.Millisecond || st.MaxTurn != 99*time.Millisecond {
			t.Errorf("busy for %v, the longest turn took %v", st.Loops[0].Busy, st.MaxTurn)
		}
	})
}

// However often a server blocks, its log has one report in a second; the rest is counted.
func TestReportsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, log := startSleeper(t, 1)
		p := srv.Open()
		for range 7 {
			p.Send("200ms\n")
			time.Sleep(300 * time.Millisecond)
		}
		lines := log.lines(t)
		if len(lines) != 4 || lines[0].Unreported != 0 || lines[2].Unreported != 3 {
			t.Errorf("the log has %v", lines)
		}
		if n := srv.Stats().Blocked; n != 7 {
			t.Errorf("blocked %d times, want 7", n)
		}
	})
}

// A callback that blocks while the server drains is reported, too; that is what one looks for then.
func TestBlockedDrainIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, log := startSleeper(t, 1)
		if err := srv.Loops()[0].Post(func() { time.Sleep(time.Second) }); err != nil {
			t.Fatal(err)
		}
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
		if lines := log.lines(t); len(lines) == 0 || !strings.Contains(lines[0].Stack, "TestBlockedDrain") || lines[0].Work != "post" {
			t.Errorf("the log has %v", lines)
		}
	})
}

func TestLagOfTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, _ := startSleeper(t, 1)
		p := srv.Open()
		time.Sleep(time.Hour)
		srv.Do(0, func(l *loop.Loop) { l.AfterFunc(10*time.Millisecond, func() {}) })
		p.Send("50ms\n")
		time.Sleep(time.Second)
		if st := srv.Stats(); st.Lag != 40*time.Millisecond || st.MaxLag != st.Lag || st.Loops[0].Lag != st.Lag {
			t.Errorf("a timer that was 40 ms late: %v, ever %v", st.Lag, st.MaxLag)
		}
		time.Sleep(2 * time.Minute)
		if st := srv.Stats(); st.Lag != 0 || st.MaxLag != 40*time.Millisecond {
			t.Errorf("two minutes later: %v, ever %v", st.Lag, st.MaxLag)
		}
	})
}

func TestLagOfPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv, _ := startSleeper(t, 1)
		p := srv.Open()
		p.Send("50ms\n")
		for range 3 {
			time.Sleep(10 * time.Millisecond)
			if err := srv.Loops()[0].Post(func() {}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if lag := srv.Stats().MaxLag; lag != 40*time.Millisecond {
			t.Errorf("a post that waited 40 ms: %v", lag)
		}
	})
}

// Work that does not fit into a turn is late, and that shows: posts after others, timers after
// others.
func TestLagOfStorms(t *testing.T) {
	storms := map[string]func(l *loop.Loop){
		"timers": func(l *loop.Loop) {
			for range 300 {
				l.AfterFunc(time.Millisecond, func() { time.Sleep(time.Millisecond) })
			}
		},
		"posts": func(l *loop.Loop) {
			for range 300 {
				_ = l.Post(func() { time.Sleep(time.Millisecond) })
			}
		},
	}
	for name, storm := range storms {
		synctest.Test(t, func(t *testing.T) {
			srv, _ := startSleeper(t, 1)
			srv.Do(0, storm)
			time.Sleep(time.Minute)
			if lag := srv.Stats().MaxLag; lag < 256*time.Millisecond || lag > 300*time.Millisecond {
				t.Errorf("the last 44 of 300 %s waited for 256 to 300 ms: lag %v", name, lag)
			}
		})
	}
}

// A deadline that was in the past from the start does not make the loop late.
func TestNoLagOfShortenedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := looptest.Start(t, &loop.Server{
			NumLoops:    1,
			IdleTimeout: 10 * time.Hour,
			Accept:      func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
		})
		p := srv.Open()
		time.Sleep(time.Hour)
		srv.Do(0, func(l *loop.Loop) {
			for c := range l.Conns() {
				c.SetIdleTimeout(time.Second)
			}
		})
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if lag := srv.Stats().MaxLag; lag > time.Millisecond || !p.Ended() {
			t.Errorf("lag %v, evicted %v", lag, p.Ended())
		}
	})
}
