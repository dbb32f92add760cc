// Package loopmetrics shows the state of a loop.Server: as metrics for Prometheus, and as a live
// page.
//
// The quickest way is a separate port for operators, on an address that others cannot reach:
//
//	page, err := loopmetrics.NewHandler(srv)
//	...
//	web := &http.Server{Addr: "127.0.0.1:9090", Handler: page, ReadTimeout: 5 * time.Second}
//	go web.ListenAndServe()
//
// Prometheus scrapes /metrics there, and a browser shows the page: the loops side by side, their
// timing wheels, rates and lags, the longest turns, the largest and slowest connections.
//
// A program with its own registry adds the server to it:
//
//	registry.MustRegister(loopmetrics.NewCollector(srv))
//
// A scrape reads counters that the loops have published; it takes no lock that a loop takes, and
// wakes none. While the page is open, it asks each loop for its connections, a few thousand a
// second at most. Without readers this package costs nothing.
//
// For OpenTelemetry use its bridge, go.opentelemetry.io/contrib/bridges/prometheus: its
// NewMetricProducer takes any Gatherer, such as the registry above.
package loopmetrics
