package realtest_test

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// A callback blocks one loop, whichever it is, and 2,000 clients come in bursts meanwhile: the
// others serve them. LOOPWHEEL_FAULT_TIME=6s blocks it for as long.
func TestFaultBlockedLoopAndNewcomers(t *testing.T) {
	needPlain(t, "2,000 handshakes take longer than the newcomers may wait")
	needSlow(t, "it blocks loops for more than a second each")
	testkit.NeedFiles(t, 4100) // on a busy machine all 2,000 may be there at once
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
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: loops,
		Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	}
	start(t, srv)
	blocked, goingOn := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(goingOn) })
	t.Cleanup(goOn)
	_ = srv.Loops()[k].Post(func() { close(blocked); <-goingOn })
	<-blocked
	control := dialPlainEcho(t)
	p := &prober{ran: cpuTime, stop: make(chan struct{})}
	p.done.Go(func() { p.control, p.errs[1] = p.ask(control) })
	const bursts, each = 40, 50
	// Those that come within 10 ms may set out for the loop before it counts as stuck: their share
	// of the first burst. A busy machine may have others look stuck, too, for an instant.
	const mayWait = bursts * each / 50
	c := &newcomersServed{late: each, lateLater: (bursts - 1) * each}
	began := time.Now()
	for burst := range bursts {
		for range each {
			c.all.Go(func() { c.come(t, srv.LocalAddr(), burst == 0) })
		}
		time.Sleep(block / bursts / 2)
	}
	// The loop is blocked until those are served who can be, however long the machine takes for it.
	testkit.Eventually(t, "most are served, by other loops", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return time.Since(began) >= block && c.lateLater <= mayWait
	})
	c.mu.Lock()
	took, late, lateLater := slices.Clone(c.took), c.late, c.lateLater
	c.mu.Unlock()
	goOn()
	c.all.Wait()
	close(p.stop)
	p.done.Wait()
	machine := p99Of(p.control, nil)
	stalls := slices.DeleteFunc(slices.Clone(p.control), func(s stretch) bool { return s.length() < otherWaits/2 })
	p99 = p99Of(took, stalls)
	t.Logf("%d served, p99 %v, %v without stalls (one that asks package net all the time: %v); %d and %d waited for the loop",
		len(took), p99Of(took, nil), p99, machine, late, lateLater)
	return p99 - each*machine/2 // who is one of so many has half of them before it
}

// newcomersServed is who was served, and how many were not yet, of the first burst and of the
// others.
type newcomersServed struct {
	all             sync.WaitGroup
	mu              sync.Mutex
	took            []stretch
	late, lateLater int
}

// come connects, and wants an echo.
func (n *newcomersServed) come(t *testing.T, addr net.Addr, first bool) {
	s := stretch{from: time.Now()}
	err := firstEcho(addr)
	s.to = time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.took = append(n.took, s); first {
		n.late--
	} else {
		n.lateLater--
	}
	if err != nil {
		t.Error(err)
	}
}

func p99Of(all, stalls []stretch) time.Duration {
	lengths := make([]time.Duration, 0, len(all))
	for _, s := range all {
		lengths = append(lengths, s.without(stalls))
	}
	slices.Sort(lengths)
	return lengths[len(lengths)*99/100]
}

func firstEcho(addr net.Addr) error {
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}
