package realtest_test

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// A stretch is how long something took, when that was, and how long a loop ran meanwhile, or
// whoever is to blame for it.
type stretch struct {
	from, to time.Time
	cpu      time.Duration
}

func (s stretch) length() time.Duration { return s.to.Sub(s.from) }

// machineStall is from when on an answer of the control is late because of the machine.
const machineStall = 3 * time.Millisecond

// A prober asks on a connection of its own, again and again, and notes how long each answer took.
// Beside it another one, its control, asks a goroutine on package net, in the same process: when
// both have to wait, or when the loop hardly runs meanwhile, it is the machine that was busy.
type prober struct {
	ran           func() time.Duration // for how long the loop has
	stop          chan struct{}
	done          sync.WaitGroup
	ours, control []stretch
	errs          [2]error
}

// A wiredLoop is a loop whose thread runs nothing else, so that it can be told for how long it ran.
type wiredLoop struct{ thread atomic.Int64 }

// wire is for Server.OnStart.
func (w *wiredLoop) wire(*loop.Loop) {
	runtime.LockOSThread()
	w.thread.Store(int64(threadID()))
}

func (w *wiredLoop) ran() time.Duration { return threadTime(int(w.thread.Load())) }

// startProber probes c, at whose other end is an echo of a loop, until verdict.
func startProber(t *testing.T, c net.Conn, l *wiredLoop) *prober {
	t.Helper()
	p := &prober{ran: l.ran, stop: make(chan struct{})}
	control := dialPlainEcho(t)
	p.done.Go(func() { p.ours, p.errs[0] = p.ask(c) })
	p.done.Go(func() { p.control, p.errs[1] = p.ask(control) })
	return p
}

func (p *prober) ask(c net.Conn) (all []stretch, err error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	b := []byte("x")
	for {
		select {
		case <-p.stop:
			return all, nil
		case <-tick.C:
		}
		s := stretch{from: time.Now(), cpu: -p.ran()}
		if _, err := c.Write(b); err != nil {
			return all, err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return all, err
		}
		s.to = time.Now()
		s.cpu += p.ran()
		all = append(all, s)
	}
}

// verdict ends the probing. It returns the longest that an answer took, without the time in which
// the machine let the control wait, too, and with it.
func (p *prober) verdict(t *testing.T) (own, worst time.Duration) {
	t.Helper()
	close(p.stop)
	p.done.Wait()
	for _, err := range p.errs {
		if err != nil {
			t.Fatalf("a prober: %v", err)
		}
	}
	own, worst = withoutStalls(p.ours, p.control)
	t.Logf("%d answers to the other client: the longest took %v, %v without what the machine stood still",
		len(p.ours), worst, own)
	return own, worst
}

// withoutStalls takes from each stretch what control stood still meanwhile, and what the loop did
// not run. It returns the longest of what is left, and of all.
func withoutStalls(ours, control []stretch) (own, worst time.Duration) {
	stalls := slices.DeleteFunc(slices.Clone(control), func(s stretch) bool { return s.length() < machineStall })
	for _, s := range ours {
		worst = max(worst, s.length())
		own = max(own, min(s.without(stalls), s.cpu))
	}
	return own, worst
}

// without returns how long s took without what of it was within others.
func (s stretch) without(others []stretch) time.Duration {
	left := s.length()
	for _, o := range others {
		if both := minTime(s.to, o.to).Sub(maxTime(s.from, o.from)); both > 0 {
			left -= both
		}
	}
	return left
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// dialPlainEcho returns a connection to a goroutine that echoes, until the test ends.
func dialPlainEcho(t *testing.T) net.Conn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer s.Close()
		var b [1]byte
		for {
			if _, err := io.ReadFull(s, b[:]); err != nil {
				return
			}
			if _, err := s.Write(b[:]); err != nil {
				return
			}
		}
	}()
	return c
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
	t.Errorf("three times the other client waited, or the heap grew, too much: %v", seen)
}

// The prober sees a loop that is busy for 200 ms, on a busy machine, too, and does not blame a
// loop for what the control saw as well.
func TestProberSeesABlockedLoop(t *testing.T) {
	var wired wiredLoop
	srv := &loop.Server{NumLoops: 1, OnStart: wired.wire, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	p := startProber(t, dial(t, start(t, srv)), &wired)
	done := make(chan struct{})
	_ = srv.Loops()[0].Post(func() {
		for began := wired.ran(); wired.ran()-began < 200*time.Millisecond; {
		}
		close(done)
	})
	<-done
	if own, _ := p.verdict(t); own < otherWaits {
		t.Errorf("the longest answer took %v", own)
	}
	at := func(ms ...int) (all []stretch) {
		for i := 0; i < len(ms); i += 2 {
			s := stretch{from: time.UnixMilli(int64(ms[i])), to: time.UnixMilli(int64(ms[i+1]))}
			s.cpu = s.length()
			all = append(all, s)
		}
		return all
	}
	ours := at(0, 150, 200, 350, 400, 401)
	for name, c := range map[string]struct {
		control []stretch
		want    time.Duration
	}{
		"an idle machine":  {at(0, 1, 50, 51, 250, 252, 400, 401), 150 * time.Millisecond},
		"it stood still":   {at(10, 140, 190, 360), 20 * time.Millisecond},
		"for one of two":   {at(10, 140), 150 * time.Millisecond},
		"before and after": {at(160, 199, 351, 400), 150 * time.Millisecond},
	} {
		if own, worst := withoutStalls(ours, c.control); own != c.want || worst != 150*time.Millisecond {
			t.Errorf("%s: %v of %v, want %v", name, own, worst, c.want)
		}
	}
}
