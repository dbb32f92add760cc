package realtest_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
)

// maxPause is what a storm may cost anybody else: what their 99th percentile may be above what it
// is without, as other programs have their share of it, too.
const maxPause = 5 * time.Millisecond

// A pulse measures for how long a loop does not come round while it has more to do than fits into a
// turn: it posts itself again and again, which is once per turn.
type pulse struct {
	l       *loop.Loop
	now     func() time.Duration
	last    time.Duration
	longest time.Duration
	turns   int
	done    func() bool
	ended   chan struct{}
}

// startPulse must be called on the loop. It ends when done.
func startPulse(l *loop.Loop, now func() time.Duration, done func() bool) *pulse {
	p := &pulse{l: l, now: now, last: now(), done: done, ended: make(chan struct{})}
	_ = l.Post(p.beat)
	return p
}

func (p *pulse) beat() {
	now := p.now()
	p.longest = max(p.longest, now-p.last)
	p.last = now
	p.turns++
	if p.done() {
		close(p.ended)
		return
	}
	_ = p.l.Post(p.beat)
}

// monotonic returns a clock that does not stand still.
func monotonic() func() time.Duration {
	began := time.Now()
	return func() time.Duration { return time.Since(began) }
}

// One million timers are due in one millisecond on the only loop, which echoes for a hundred
// clients. All fire once, none is early, and the clients do not notice.
func TestFaultTimerStorm(t *testing.T) {
	needSlow(t, "several storms of a million timers")
	srv := &loop.Server{
		NumLoops: 1,
		Codec:    codec.Lines{},
		Accept:   func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	}
	addr := start(t, srv)
	clients := echoers(t, addr.Network(), addr.String(), 100, 10*time.Millisecond)
	inTime(t, maxPause, func() time.Duration {
		for ahead := 4 * time.Second; ; ahead *= 2 {
			if d, ok := timerStorm(t, srv.Loops()[0], clients, ahead); ok {
				return d
			}
		}
	})
	t.Logf("the longest turn of all took %v", srv.Stats().Loops[0].MaxTurn)
}

// timerStorm has a storm that long from now on. It returns false if that was too soon for the
// machine to set all timers before.
func timerStorm(t *testing.T, l *loop.Loop, clients *puppet, ahead time.Duration) (longer time.Duration, ok bool) {
	const n, step = 1_000_000, 500
	calm := clients.calm()
	fired := make([]uint8, n)
	left, early := n, 0
	due := time.Now().Add(ahead)
	var last atomic.Int64
	for i := 0; i < n; i += step {
		set := make(chan struct{})
		if err := l.Post(func() {
			for j := range step {
				l.AfterFunc(time.Until(due), func() {
					if fired[i+j]++; time.Now().Before(due) {
						early++
					}
					if left--; left == 0 {
						last.Store(int64(time.Since(due)))
					}
				})
			}
			close(set)
		}); err != nil {
			t.Fatal(err)
		}
		<-set
	}
	rest := time.Until(due)
	if ok = rest >= 200*time.Millisecond; ok {
		time.Sleep(rest - 50*time.Millisecond) // until shortly before the storm
	}
	clients.ask("reset")
	if ok {
		time.Sleep(45 * time.Millisecond) // the pulse begins just before it
	}
	pulsed := make(chan *pulse)
	_ = l.Post(func() { pulsed <- startPulse(l, monotonic(), func() bool { return left == 0 }) })
	p := <-pulsed
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		t.Fatal("the storm does not end")
	}
	during := clients.report()
	_ = l.Post(func() { pulsed <- p })
	<-pulsed
	for i, k := range fired {
		if k != 1 {
			t.Fatalf("timer %d fired %d times", i, k)
		}
	}
	if early > 0 {
		t.Errorf("%d timers were early", early)
	}
	t.Logf("a million timers took %v in %d turns, at most %v from one to the next; echo before: %v; meanwhile: %v",
		time.Duration(last.Load()), p.turns, p.longest, calm, during)
	return during.p99 - calm.p99, ok
}

// sleepersChild holds $CONNS connections to $ADDR that are silent. "closed" says how many have
// ended.
func sleepersChild() {
	network, addr, _ := strings.Cut(os.Getenv("ADDR"), " ")
	n, _ := strconv.Atoi(os.Getenv("CONNS"))
	var closed atomic.Int64
	var dialing sync.WaitGroup
	for i := range 50 {
		dialing.Go(func() {
			for range n/50 + min(1, max(0, n%50-i)) {
				c, err := connect(network, addr)
				if err != nil {
					fail(err)
				}
				go func() {
					_, _ = c.Read(make([]byte, 1)) // over TLS the handshake comes first
					closed.Add(1)
					c.Close()
				}()
			}
		})
	}
	dialing.Wait()
	fmt.Println("ready")
	obey(func([]string) string { return strconv.Itoa(int(closed.Load())) })
}

// 15,000 real connections are evicted together: the loop goes on coming round meanwhile.
func TestFaultIdleStorm(t *testing.T) {
	needLinux(t)
	needSlow(t, "15,000 connections")
	conns := 15_000
	if overTLS() {
		conns = 3000 // a busy machine takes a minute for 15,000 handshakes, and by then the first have been idle
	}
	testkit.NeedFiles(t, conns+200)
	inTime(t, maxPause, func() time.Duration { return idleStorm(t, conns) })
}

func idleStorm(t *testing.T, n int) time.Duration {
	const timeout = time.Minute
	var turns turnWatch
	closed := 0
	over := make(chan struct{})
	srv := &loop.Server{
		NumLoops:    1,
		IdleTimeout: timeout,
		Timeouts:    loop.Timeouts{Handshake: timeout},
		OnStart:     func(*loop.Loop) { runtime.LockOSThread() },
		Accept: func(c *loop.Conn) loop.Handler {
			return script{Close: func(_ *loop.Conn, err error) {
				if err != loop.ErrIdle {
					t.Errorf("closed with %v", err)
				}
				if closed++; closed == 1 {
					turns.begin(c.Loop())
				}
				if turns.look(); closed == n {
					turns.end = true
					close(over)
				}
			}}
		},
	}
	addr := start(t, srv)
	clients := startPuppet(t, "sleepers", "ADDR="+addr.Network()+" "+addr.String(), fmt.Sprint("CONNS=", n))
	if s := clients.hear(); s != "ready" {
		t.Fatal(s)
	}
	testkit.Eventually(t, "all are in", func() bool { return srv.Stats().Conns == n })
	// All were opened at different times. Now they get the same deadline.
	at, info := time.Now().Add(time.Second), inside.Take[inside.ForMetrics[*loop.Conn, *loop.Loop]]().Info
	if err := srv.Loops()[0].Post(func() {
		for c := range srv.Loops()[0].Conns() {
			deadline := info(c).IdleDeadline
			c.SetIdleTimeout(timeout + at.Sub(deadline))
		}
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Fatal("not all were evicted")
	}
	t.Logf("%d connections were evicted within %v, in %d turns, the longest %v, %v without what the machine's other programs took",
		n, time.Since(at), turns.turns, turns.longest, turns.own)
	testkit.Eventually(t, "the clients have noticed", func() bool { return clients.number("closed") == n })
	clients.ends()
	return turns.own
}

// A turnWatch measures the longest turn of a loop that is locked to its thread, and how much of
// that the thread did not wait for one of the machine's CPUs, which others may use.
type turnWatch struct {
	l            *loop.Loop
	delays       *os.File
	began        time.Time
	waited       time.Duration
	turns        int
	longest, own time.Duration // of one turn, of one turn
	end          bool
}

// begin must be called on the loop.
func (w *turnWatch) begin(l *loop.Loop) {
	f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/schedstat", threadID()))
	if err != nil {
		fail(err)
	}
	w.l, w.delays = l, f
	w.beat()
}

// beat is the first thing in each turn.
func (w *turnWatch) beat() {
	if w.end {
		w.delays.Close()
		return
	}
	w.turns++
	w.began, w.waited = time.Now(), w.delay()
	_ = w.l.Post(w.beat)
}

// look is called again and again until the end of the turn.
func (w *turnWatch) look() {
	d := time.Since(w.began)
	if d > w.own {
		w.own = max(w.own, d-(w.delay()-w.waited))
	}
	w.longest = max(w.longest, d)
}

// delay returns for how long this thread has been ready to run, and did not.
func (w *turnWatch) delay() time.Duration {
	var b [100]byte
	n, _ := w.delays.ReadAt(b[:], 0)
	var ran, waited int64
	_, _ = fmt.Sscan(string(b[:n]), &ran, &waited)
	return time.Duration(waited)
}
