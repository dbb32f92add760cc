package loopmetrics_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
	"github.com/loopwheel/loopwheel/timing"
)

// The live page and the metrics on a port of their own, which nobody else can reach.
func ExampleHandler() {
	srv := &loop.Server{
		Addr: "tcp://127.0.0.1:7000",
		Accept: func(*loop.Conn) loop.Handler {
			return loop.HandlerFunc(func(c *loop.Conn, b []byte) error { return c.Send(b) })
		},
	}
	page, err := loopmetrics.NewHandler(srv)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		web := &http.Server{Addr: "127.0.0.1:9090", Handler: page, ReadTimeout: 5 * time.Second}
		log.Print(web.ListenAndServe())
	}()
	log.Fatal(srv.Run(context.Background()))
}

// A custom registry.
func ExampleNewCollector() {
	srv := new(loop.Server)
	registry := prometheus.NewRegistry()
	registry.MustRegister(loopmetrics.NewCollector(srv))
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "loopwheel_tls") {
			fmt.Println(f.GetName())
		}
	}
	// Output:
	// loopwheel_tls_handshakes_failed_total
	// loopwheel_tls_handshakes_pending
	// loopwheel_tls_handshakes_total
}

// The page's metrics have those of a Scheduler, too.
func ExampleNewSchedulerCollector() {
	jobs := timing.NewScheduler(timing.SchedulerConfig{})
	defer jobs.Stop()
	page, err := loopmetrics.NewHandler(new(loop.Server), loopmetrics.NewSchedulerCollector("jobs", jobs))
	if err != nil {
		fmt.Println(err)
		return
	}

	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "loopwheel_scheduler_timers{") {
			fmt.Print(line)
		}
	}
	// Output: loopwheel_scheduler_timers{scheduler="jobs"} 0
}
