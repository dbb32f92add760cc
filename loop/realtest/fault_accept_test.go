package realtest_test

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// A callback blocks one loop, whichever it is, and 2,000 clients come in bursts meanwhile: the
// others serve them. LOOPWHEEL_FAULT_TIME=6s blocks it for as long.
func TestFaultBlockedLoopAndNewcomers(t *testing.T) {
	needPlain(t, "2,000 handshakes take longer than the newcomers may wait")
	needSlow(t, "it blocks loops for more than a second each")
	block := faultTime(t, 1500*time.Millisecond)
	for _, loops := range []int{2, 4} {
		for k := range loops {
			t.Run(fmt.Sprintf("loop %d of %d", k, loops), func(t *testing.T) {
				tries(t, func(t *testing.T) (waited time.Duration, heap uint64) {
					return newcomers(t, k, loops, block), 0
				})
			})
		}
	}
}

// newcomers returns the 99th percentile of what those wait who are served, without the machine's
// part.
func newcomers(t *testing.T, k, loops int, block time.Duration) (p99 time.Duration) {
	const bursts, each = 40, 50
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: loops,
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	}
	start(t, srv)
	blocked, goOn := make(chan struct{}), make(chan struct{})
	_ = srv.Loops()[k].Post(func() { close(blocked); <-goOn })
	<-blocked
	control := dialPlainEcho(t)
	p := &prober{stop: make(chan struct{})}
	p.done.Go(func() { p.control, p.errs[1] = p.ask(control) })
	ended := time.Now().Add(block)
	var mu sync.Mutex
	var took []time.Duration
	late, lateLater := 0, 0
	var wg sync.WaitGroup
	for burst := range bursts {
		for range each {
			wg.Go(func() {
				d, err := firstEcho(srv.LocalAddr(), ended)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					took = append(took, d)
				case burst == 0:
					late++
				default:
					lateLater++
				}
			})
		}
		time.Sleep(block / bursts / 2)
	}
	wg.Wait()
	close(goOn)
	close(p.stop)
	p.done.Wait()
	slices.Sort(took)
	p99 = took[len(took)*99/100]
	machine := p99Of(p.control)
	t.Logf("%d served, median %v, p99 %v (one that asks package net all the time: %v); %d and %d waited for the loop",
		len(took), took[len(took)/2], p99, machine, late, lateLater)
	// Those that come within 10 ms may set out for the loop before it counts as stuck: their share
	// of the first burst. A busy machine may have others look stuck, too, for an instant.
	if late > each || lateLater > bursts*each/50 {
		t.Errorf("of %d %d and %d waited until it went on", bursts*each, late, lateLater)
	}
	return p99 - each*machine/2 // who is one of so many has half of them before it
}

func p99Of(all []stretch) time.Duration {
	lengths := make([]time.Duration, 0, len(all))
	for _, s := range all {
		lengths = append(lengths, s.length())
	}
	slices.Sort(lengths)
	return lengths[len(lengths)*99/100]
}

// firstEcho connects, and returns how long it takes until it is answered, if that is before end.
func firstEcho(addr net.Addr, end time.Time) (time.Duration, error) {
	began := time.Now()
	c, err := net.Dial(addr.Network(), addr.String())
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
