package realtest_test

import (
	"os"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// pace checks the calls of a Loop.Every, however late they are. When exactly it began is not known:
// the loop looks at the clock once more.
type pace struct {
	period      time.Duration
	begin, made time.Time // before and after Loop.Every
	calls       int
	next        int // this period cannot be skipped: it was ahead at the last call
}

func (p *pace) called(t *testing.T) {
	now := time.Now()
	p.calls++
	if due := p.begin.Add(time.Duration(p.calls) * p.period); now.Before(due) {
		t.Errorf("period %v: call %d is early by %v", p.period, p.calls, due.Sub(now))
	}
	p.next = int(now.Sub(p.begin)/p.period) + 1
}

// atLeast checks that what is due a tick before a deadline has been called when that is.
func (p *pace) atLeast(t *testing.T, deadline time.Time) {
	const tick = time.Millisecond
	if due := p.made.Add(time.Duration(p.next)*p.period + tick); !due.After(deadline) {
		t.Errorf("period %v: no call since number %d, and the next was to come by %v", p.period, p.calls, due)
	}
}

// On a loop, by a real clock, no period is called early, and none is passed over that was ahead
// when the one before was called: a timer that is due later is never called first. 10 s are 10,000
// periods of a millisecond.
func TestEveryInRealTime(t *testing.T) {
	lasts := 500 * time.Millisecond
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		lasts = 10 * time.Second
	} else {
		t.Logf("for %v; set LOOPWHEEL_SLOW=1 for 10 s", lasts)
	}
	srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) }}
	start(t, srv)
	l := srv.Loops()[0]
	done := make(chan bool)
	if err := l.Post(func() { everyInRealTime(t, l, lasts, done) }); err != nil {
		t.Fatal(err)
	}
	<-done
}

func everyInRealTime(t *testing.T, l *loop.Loop, lasts time.Duration, done chan bool) {
	begin := time.Now()
	var paces []*pace
	for _, period := range []time.Duration{10, 15, 20, 100, 10_000} {
		p := &pace{period: period * time.Millisecond / 10, begin: time.Now(), next: 1}
		paces = append(paces, p)
		l.Every(p.period, func() { p.called(t) })
		p.made = time.Now()
	}
	var look func()
	deadline := begin
	look = func() {
		for _, p := range paces {
			p.atLeast(t, deadline)
		}
		if t.Failed() || deadline.Sub(begin) > lasts {
			for _, p := range paces {
				t.Logf("period %v: %d calls in %v", p.period, p.calls, time.Since(begin))
			}
			close(done)
			return
		}
		deadline = time.Now().Add(3 * time.Millisecond)
		l.AfterFunc(3*time.Millisecond, look)
	}
	look()
}
