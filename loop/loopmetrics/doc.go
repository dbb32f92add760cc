// Package loopmetrics shows what a loop.Server does: as metrics for Prometheus, and as a live page.
//
// The quickest way is a port for those who run the server, on an address that others cannot reach:
//
//	page, err := loopmetrics.NewHandler(srv)
//	...
//	web := &http.Server{Addr: "127.0.0.1:9090", Handler: page, ReadTimeout: 5 * time.Second}
//	go web.ListenAndServe()
//
// Prometheus scrapes /metrics there, and a browser shows the page: the loops side by side, their
// timing wheels, rates and lags, the longest turns, the largest and slowest connections.
//
// A program with a registry of its own adds the server to it:
//
//	registry.MustRegister(loopmetrics.NewCollector(srv))
//
// A scrape reads counters that the loops have published; it takes no lock that a loop takes, and
// wakes none. The page asks each loop for its connections while somebody looks, a few thousand a
// second at most. A server that nobody looks at pays nothing for this package.
//
// For OpenTelemetry use its bridge, go.opentelemetry.io/contrib/bridges/prometheus: its
// NewMetricProducer takes any Gatherer, such as the registry above.
package loopmetrics
