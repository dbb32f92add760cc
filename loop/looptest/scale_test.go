//go:build unix

package looptest_test

import (
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// TestScale shows how cost grows with connections, in memory and virtual time: each sends a line
// every 30 s at a time of its own, has an idle timeout of a minute, and 1 % of them talk once a
// second. LOOPWHEEL_SCALE is the number of connections. docs/scaling.md has the figures.
func TestScale(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("LOOPWHEEL_SCALE"))
	if n == 0 {
		t.Skip("LOOPWHEEL_SCALE is not set: the number of connections, such as 100000")
	}
	synctest.Test(t, func(t *testing.T) {
		before := heap()
		srv := looptest.Start(t, &loop.Server{
			NumLoops: 1, Codec: codec.Lines{}, IdleTimeout: time.Minute, IdleJitter: 5 * time.Second, MaxConns: n,
			Accept: handler.Chain(func(c *loop.Conn) loop.Handler {
				return loop.HandlerFunc(func(c *loop.Conn, line []byte) error { return nil })
			}, handler.Heartbeat{Interval: 30 * time.Second, Message: []byte("ping"), SendOnly: true, Jitter: 10 * time.Second}),
		})
		peers := make([]*looptest.Peer, n)
		for i := range peers {
			peers[i] = srv.Open()
		}
		open := heap()
		const minutes = 5
		cpu := cpuTime()
		for second := range 60 * minutes {
			for i := second % 30; i < n; i += 30 {
				peers[i].Send("\n")
			}
			for i := 0; i < n; i += 100 {
				peers[i].Send("hello\n")
			}
			srv.Sleep(time.Second)
		}
		took := cpuTime() - cpu
		st := srv.Stats()
		if st.Conns != n {
			t.Errorf("%d of %d connections are open", st.Conns, n)
		}
		t.Logf("%d connections: %d bytes each with the test's own, %v of CPU per connection and minute, test included; %d messages, %d timers fired",
			n, (open-before)/n, took/time.Duration(n*minutes), st.Messages, st.Fired)
	})
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse)
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
