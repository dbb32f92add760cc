package realtest_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// machineStall is from when on an answer may be late because of the machine.
const machineStall = 3 * time.Millisecond

// A prober asks an echo again and again on a connection of its own, and notes the longest that an
// answer took, without the time in which the machine stood still.
type prober struct {
	stop, done chan struct{}
	longest    time.Duration
	err        error
}

// startProber probes c until verdict.
func startProber(c net.Conn) *prober {
	p := &prober{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = p.ask(c)
	}()
	return p
}

func (p *prober) ask(c net.Conn) error {
	machine := testkit.WatchStalls()
	defer machine.End()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for b := []byte("x"); ; {
		select {
		case <-p.stop:
			return nil
		case <-tick.C:
		}
		asked := time.Now()
		if _, err := c.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		answered := time.Now()
		if d := answered.Sub(asked); d > p.longest {
			p.longest = max(p.longest, d-machine.Within(asked, answered))
		}
	}
}

// verdict ends the probing, and returns the longest that an answer took.
func (p *prober) verdict(t *testing.T) time.Duration {
	t.Helper()
	close(p.stop)
	<-p.done
	if p.err != nil {
		t.Fatalf("the prober: %v", p.err)
	}
	t.Logf("the longest answer to the other client took %v", p.longest)
	return p.longest
}

// tries runs f again if the other client has waited too long, or the heap has grown too much, in
// which a busy machine may have a part: what is wrong indeed is so each time.
func tries(t *testing.T, f func(t *testing.T) (waited time.Duration, heap uint64)) {
	t.Helper()
	var seen []string
	for range 3 {
		waited, heap := f(t)
		if waited <= otherWaits && heap <= mostHeap || t.Failed() {
			return
		}
		seen = append(seen, fmt.Sprintf("%v and %d MiB", waited, heap>>20))
	}
	t.Errorf("three times the other client waited, or the heap grew, too much: %v; want at most %v and %d MiB",
		seen, otherWaits, mostHeap>>20)
}
