package realtest_test

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// A callback blocks one loop, whichever it is, and 2,000 clients come in bursts meanwhile: the
// others serve them.
func TestFaultBlockedLoopAndNewcomers(t *testing.T) {
	needSlow(t, "it blocks loops for six seconds each")
	needPlain(t, "2,000 handshakes take longer than the newcomers may wait")
	const loops, bursts, each, block = 2, 40, 50, 6 * time.Second
	for k := range loops {
		srv := &loop.Server{
			Addr: "tcp://127.0.0.1:0", NumLoops: loops,
			Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
		}
		start(t, srv)
		blocked, ended := make(chan struct{}), time.Now().Add(block)
		_ = srv.Loops()[k].Post(func() { close(blocked); time.Sleep(block) })
		<-blocked
		var mu sync.Mutex
		var took []time.Duration
		late := 0
		var wg sync.WaitGroup
		for range bursts {
			for range each {
				wg.Go(func() {
					d, err := firstEcho(srv.LocalAddr(), ended)
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						late++
					} else {
						took = append(took, d)
					}
				})
			}
			time.Sleep(block / bursts / 2)
		}
		wg.Wait()
		slices.Sort(took)
		p99 := took[len(took)*99/100]
		t.Logf("loop %d blocked: %d served, median %v, p99 %v; %d waited for it", k, len(took), took[len(took)/2], p99, late)
		// Those that set out for the loop just before it was found to be stuck have to wait.
		if late > bursts*each/50 || p99 > 100*time.Millisecond {
			t.Errorf("loop %d blocked: p99 %v, %d of %d waited until it went on", k, p99, late, bursts*each)
		}
	}
}

// firstEcho connects, and returns how long it takes until it is answered, if that is before end.
func firstEcho(addr net.Addr, end time.Time) (time.Duration, error) {
	began := time.Now()
	c, err := connect(addr.Network(), addr.String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(end)
	if _, err := c.Write([]byte("x")); err != nil {
		return 0, err
	}
	_, err = c.Read(make([]byte, 1))
	return time.Since(began), err
}
