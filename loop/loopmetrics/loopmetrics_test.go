package loopmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
	"github.com/loopwheel/loopwheel/timing"
)

const patience = time.Minute

// session echoes; it tells why it was closed, and sleeps if asked.
type session struct{ closed chan<- error }

func (s session) OnMessage(c *loop.Conn, msg []byte) error {
	switch string(msg) {
	case "sleep":
		time.Sleep(150 * time.Millisecond) // long enough for the watchdog to see it: others are measured now and then
	case "panic":
		panic("asked for")
	}
	return c.Send(msg)
}

func (s session) OnClose(_ *loop.Conn, err error) {
	select {
	case s.closed <- err:
	default:
	}
}

func newHandler(t testing.TB, srv *loop.Server, more ...prometheus.Collector) *loopmetrics.Handler {
	t.Helper()
	h, err := loopmetrics.NewHandler(srv, more...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Collectors that have the same metrics are an error of NewHandler, not of each scrape.
func TestDuplicateCollectors(t *testing.T) {
	counter := func() prometheus.Collector {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "mine_total", Help: "x"})
	}
	srv := new(loop.Server)
	for name, more := range map[string][]prometheus.Collector{
		"Go's":      {collectors.NewGoCollector()},
		"a server":  {loopmetrics.NewCollector(srv)},
		"the users": {counter(), counter()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loopmetrics.NewHandler(srv, more...)
			if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); !ok {
				t.Errorf("NewHandler: %v, want AlreadyRegisteredError", err)
			}
		})
	}
}

// start runs a server of two loops, and the page before it.
func start(t testing.TB, change func(*loopmetrics.Handler), more ...prometheus.Collector) (srv *loop.Server, web *httptest.Server, closed chan error) {
	t.Helper()
	closed = make(chan error, 10)
	srv = &loop.Server{
		Addr: "tcp://127.0.0.1:0", NumLoops: 2, Codec: codec.Lines{}, IdleTimeout: time.Hour,
		Accept: func(*loop.Conn) loop.Handler { return session{closed} },
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, srv, more...)
	if change != nil {
		change(h)
	}
	web = httptest.NewServer(h)
	t.Cleanup(func() {
		web.Close()
		cancel()
		if err := srv.Wait(); err != nil {
			t.Error(err)
		}
	})
	return srv, web, closed
}

// talk opens a connection and exchanges lines.
func talk(t testing.TB, srv *loop.Server, lines ...string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", srv.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	say(t, c, lines...)
	return c
}

// say exchanges lines.
func say(t testing.TB, c net.Conn, lines ...string) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(patience))
	for _, l := range lines {
		got := make([]byte, len(l)+1)
		if _, err := io.WriteString(c, l+"\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
	}
}

// get returns the body of a page.
func get(t testing.TB, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v, %s", url, r.Status, err, body)
	}
	return string(body)
}

func TestMetrics(t *testing.T) {
	s := timing.NewScheduler(timing.SchedulerConfig{})
	t.Cleanup(func() { s.Stop() })
	s.AfterFunc(time.Hour, func() {})
	srv, web, closed := start(t, nil, loopmetrics.NewSchedulerCollector("jobs", s))
	talk(t, srv, "one", "two", "sleep").Close()
	<-closed
	c := talk(t, srv)
	_, _ = io.WriteString(c, "panic\n")
	<-closed
	talk(t, srv)
	var body string
	testkit.Eventually(t, "all are counted", func() bool {
		body = get(t, web.URL+"/metrics")
		return strings.Contains(body, "loopwheel_accepted_total 3") &&
			strings.Contains(body, `loopwheel_closed_total{reason="panic"} 1`) &&
			strings.Contains(body, `loopwheel_closed_total{reason="peer"} 1`)
	})
	for _, want := range []string{
		"loopwheel_accepted_total 3", "loopwheel_panics_total 1", `loopwheel_closed_total{reason="idle"} 0`, "loopwheel_refused_total 0",
		`loopwheel_messages_total{loop="0"}`, `loopwheel_connections{loop="1"}`,
		`loopwheel_turn_seconds_bucket{loop="0",le="0.000128"}`, `loopwheel_turn_seconds_bucket{loop="1",le="+Inf"}`,
		`loopwheel_timer_lateness_seconds_count{loop="0"}`, `loopwheel_mailbox_wait_seconds_sum{loop="1"}`,
		`loopwheel_scheduler_timers{scheduler="jobs"} 1`, "go_goroutines ", "process_cpu_seconds_total ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in:\n%s", want, body)
		}
	}
}

// The client library's own linter has nothing to say.
func TestLint(t *testing.T) {
	srv, _, _ := start(t, nil)
	s := timing.NewScheduler(timing.SchedulerConfig{})
	defer s.Stop()
	for _, c := range []prometheus.Collector{loopmetrics.NewCollector(srv), loopmetrics.NewSchedulerCollector("x", s)} {
		problems, err := testutil.CollectAndLint(c)
		if err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		if n := testutil.CollectAndCount(c); n < 7 {
			t.Errorf("%d metrics", n)
		}
	}
}

// A server that has not started has counters, and no loops.
func TestBeforeStart(t *testing.T) {
	srv := &loop.Server{}
	if n := testutil.CollectAndCount(loopmetrics.NewCollector(srv)); n == 0 {
		t.Error("no metrics")
	}
	w := httptest.NewRecorder()
	newHandler(t, srv).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/state", nil))
	if w.Code != http.StatusOK {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
}

// However many ask, the work is done once a second; each form of the answer is its own.
func TestScrapedTooOften(t *testing.T) {
	srv, web, _ := start(t, nil, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "asked_total", Help: "x"}, counting()))
	talk(t, srv)
	began := time.Now()
	for range 100 {
		if body := get(t, web.URL+"/metrics"); !strings.Contains(body, "asked_total ") {
			t.Fatal(body)
		}
	}
	most := int(time.Since(began)/time.Second) + 1
	var asked int
	testkit.Eventually(t, "the answer is made anew", func() bool {
		_, rest, _ := strings.Cut(get(t, web.URL+"/metrics"), "\nasked_total ")
		if _, err := fmt.Sscan(rest, &asked); err != nil {
			t.Fatal(err)
		}
		return asked > 1
	})
	if asked > most+1+int(time.Since(began)/time.Second) {
		t.Errorf("gathered %d times in %v", asked, time.Since(began))
	}
	r, _ := http.NewRequest("GET", web.URL+"/metrics", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("asked for gzip, got %v", answer.Header)
	}
}

// counting returns a function that returns how often it was called.
func counting() func() float64 {
	var n atomic.Int64
	return func() float64 { return float64(n.Add(1)) }
}

// BenchmarkScrape is what Prometheus costs. Fifty a second may take a hundredth of a core: 200 µs
// each.
func BenchmarkScrape(b *testing.B) {
	for name, path := range map[string]string{"metrics": "/metrics", "state": "/state"} {
		b.Run(name, func(b *testing.B) {
			srv, _, _ := start(b, nil)
			talk(b, srv, "hello")
			h := newHandler(b, srv)
			r := httptest.NewRequest("GET", "http://localhost"+path, nil)
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
