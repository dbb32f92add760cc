//go:build linux

package scaletest_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

const (
	// heartbeat is how often a silent client is pinged; it answers.
	heartbeat = 30 * time.Second

	// idleTimeout is when one that has vanished is evicted.
	idleTimeout = 75 * time.Second

	// opening is how long they take to connect, evenly.
	opening = 30 * time.Second
)

// TestScale has a loop with more and more connections in memory and virtual time. Each is pinged
// when it was silent for 30 s, and answers; one in a hundred says 64 bytes a second instead, which
// are echoed; one in a thousand vanishes each minute, is evicted and comes anew.
//
// LOOPWHEEL_SCALE has the numbers of connections, by commas, LOOPWHEEL_SCALE_FOR how long each
// lasts in virtual time.
func TestScale(t *testing.T) {
	counts, lasts, runs := scale(t)
	var rows []row
	for _, n := range counts {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			var best row
			for i := range runs { // a turn that is long by our own doing is long in each of them
				synctest.Test(t, func(t *testing.T) {
					r := run(t, n, lasts)
					if i == 0 {
						best = r
					}
					best.cpu, best.event, best.worst = min(best.cpu, r.cpu), min(best.event, r.event), min(best.worst, r.worst)
				})
			}
			if runs > 1 && best.worst > worstTurn {
				t.Errorf("the worst turn took %v or more in each run, want at most %v", best.worst, worstTurn)
			}
			rows = append(rows, best)
		})
	}
	if t.Failed() {
		return
	}
	var table strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&table, "%v\n", r)
		progress("%s", r.markdown())
	}
	t.Logf("%v of virtual time\n%s", lasts, table.String())
	for i, r := range rows {
		// Those who come anew are made anew, and the runtime makes some objects of its own, as for
		// a thread.
		if r.garbage > 0.02+100/float64(r.messages) && !raceEnabled {
			t.Errorf("%d connections: %.3f objects are made for each message", r.conns, r.garbage)
		}
		if r.bytes > 1.1*rows[0].bytes {
			t.Errorf("a connection takes %.0f bytes with %d of them, and %.0f with %d", r.bytes, r.conns, rows[0].bytes, rows[0].conns)
		}
		if i > 0 && rows[i-1].conns >= 10_000 && r.cpu > rows[i-1].cpu*12/10 {
			t.Errorf("a connection takes %v of CPU a minute with %d of them, and %v with %d", r.cpu, r.conns, rows[i-1].cpu, rows[i-1].conns)
		}
	}
}

// scale returns what is to be measured.
func scale(t *testing.T) (counts []int, lasts time.Duration, runs int) {
	list := "1000,10000"
	lasts, runs = 2*time.Minute, 1
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		list, lasts, runs = "10000,100000", 3*time.Minute, 2
	}
	if s := os.Getenv("LOOPWHEEL_SCALE"); s != "" {
		list = s
	}
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1000 {
			t.Fatalf("LOOPWHEEL_SCALE: %q is no number of at least 1000", s)
		}
		counts = append(counts, n)
	}
	if s := os.Getenv("LOOPWHEEL_SCALE_FOR"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < time.Minute {
			t.Fatalf("LOOPWHEEL_SCALE_FOR: %q is no time of at least a minute", s)
		}
		lasts = d
	}
	return counts, lasts, runs
}

// A row is what one number of connections gave.
type row struct {
	conns    int
	bytes    float64       // live heap per connection
	objects  float64       // the same
	cpu      time.Duration // in turns, per connection and minute
	event    time.Duration // per message or timer
	worst    time.Duration // turn, in the run in which it was shortest
	messages uint64
	fired    uint64
	garbage  float64 // objects per message in steady state
}

// String is a line of the table.
func (r row) String() string {
	return fmt.Sprintf("%8d connections: %5.0f bytes and %4.1f objects each, %v of CPU per connection and minute, %v per message or timer, worst turn %v; %d messages, %d timers, %.5f objects per message",
		r.conns, r.bytes, r.objects, r.cpu, r.event, r.worst, r.messages, r.fired, r.garbage)
}

// markdown is a line of a table.
func (r row) markdown() string {
	return fmt.Sprintf("| %d | %.0f B | %.1f | %.1f µs | %.2f µs | %.2f ms |", r.conns, r.bytes, r.objects,
		micros(r.cpu), micros(r.event), micros(r.worst)/1000)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// session is the handler: it echoes, but for answers to pings.
type session struct{ pongs, lines int }

func (s *session) OnMessage(c *loop.Conn, line []byte) error {
	if len(line) == len("pong") {
		s.pongs++
		return nil
	}
	s.lines++
	return c.Send(line)
}

func (s *session) OnClose(*loop.Conn, error) {}

// run measures n connections.
func run(t *testing.T, n int, lasts time.Duration) row {
	w := newWorld(n)
	srv := &loop.Server{
		Addr: "tcp://memory:0", NumLoops: 1, Limits: loop.Limits{MaxConns: n + n/10}, IdleTimeout: idleTimeout, Codec: codec.Lines{},
		Accept: handler.Chain(func(*loop.Conn) loop.Handler { return &session{} },
			handler.Heartbeat{Interval: heartbeat, Message: []byte("ping"), Missed: 2}),
	}
	empty := memory()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := srv.Start(testhook.WithEngine(ctx, w)); err != nil {
		t.Fatal(err)
	}
	open(w)
	full := memory()
	onLoop(t, srv, func() {
		w.meter.restart()
		w.talk = rota{n: n / 100, begins: w.now(), period: time.Second}
		w.fall = rota{from: n / 100, n: n - n/100, begins: w.now(), period: 1000 * time.Minute}
	})
	before := srv.Stats()
	for i := range int(lasts / time.Minute) {
		testkit.Pass(time.Minute)
		onLoop(t, srv, func() {
			progress("%d connections: minute %d of %v, %v of CPU per connection and minute, %v", n, i+1, lasts,
				w.meter.busy/time.Duration(n*(i+1)), &w.meter)
		})
	}
	r := row{conns: n, bytes: (full.bytes - empty.bytes) / float64(n), objects: (full.objects - empty.objects) / float64(n)}
	onLoop(t, srv, func() {
		after := srv.Stats()
		r.worst, r.cpu = w.meter.worst, time.Duration(float64(w.meter.busy)/float64(n)/lasts.Minutes())
		r.messages, r.fired = after.Messages-before.Messages, after.Fired-before.Fired
		r.event = w.meter.busy / time.Duration(r.messages+r.fired)
		t.Logf("%d connections: %v", n, &w.meter)
		w.over, w.meter = true, meter{}
	})
	r.garbage = (memory().made - full.made) / float64(r.messages)
	check(t, w, srv.Stats())
	cancel()
	if err := srv.Wait(); err != nil {
		t.Error(err)
	}
	return r
}

// open connects all clients, evenly over a time.
func open(w *world) {
	n, sent := len(w.clients), 0
	for ms := 1; sent < n; ms++ {
		for sent < n && sent*int(opening/time.Millisecond) < ms*n {
			w.comes <- &w.clients[sent]
			sent++
		}
		testkit.Pass(time.Millisecond)
	}
	testkit.Pass(2 * heartbeat) // all were pinged, and the server has what it needs for that
}

// check compares what the server has counted with what the clients have seen.
func check(t *testing.T, w *world, st loop.Stats) {
	if absent := len(w.clients) - st.Conns; absent < 0 || absent > w.ended {
		t.Errorf("%d of %d connections are open", st.Conns, len(w.clients))
	}
	if w.echoes != w.talked || w.talked == 0 {
		t.Errorf("%d of %d lines were echoed", w.echoes, w.talked)
	}
	if st.ClosedBy["idle"] != uint64(w.ended) || w.ended == 0 || w.fallen-w.ended > w.fallen {
		t.Errorf("%d were evicted, of %d that vanished %d have lost their connection", st.ClosedBy["idle"], w.fallen, w.ended)
	}
	if w.early < 0 || w.latest > 3*time.Millisecond {
		t.Errorf("evicted between %v and %v late", w.early, w.latest)
	}
}

// onLoop runs f there and waits for it.
func onLoop(t *testing.T, srv *loop.Server, f func()) {
	done := make(chan struct{})
	if err := srv.Loops()[0].Post(func() { defer close(done); f() }); err != nil {
		t.Fatal(err)
	}
	<-done
	synctest.Wait()
}

// usage is what the heap has, and how many objects there ever were.
type usage struct{ bytes, objects, made float64 }

func memory() usage {
	runtime.GC()
	runtime.GC() // what is in pools survives one
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/objects:objects"}, {Name: "/gc/heap/allocs:objects"},
	}
	metrics.Read(samples)
	return usage{float64(samples[0].Value.Uint64()), float64(samples[1].Value.Uint64()), float64(samples[2].Value.Uint64())}
}

// asked reports whether somebody waits for what is measured.
func asked() bool { return os.Getenv("LOOPWHEEL_SCALE") != "" }

// progress says on standard error what goes on, if somebody waits for it.
func progress(format string, args ...any) {
	if asked() {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	}
}
