// Package loopmetrics shows what a loop.Server does, as Prometheus metrics and as a live page.
//
// The quickest way is a separate port for operators, on an address that others cannot reach:
//
//	page, err := loopmetrics.NewHandler(srv)
//	...
//	web := &http.Server{Addr: "127.0.0.1:9090", Handler: page, ReadTimeout: 5 * time.Second}
//	go web.ListenAndServe()
//
// Prometheus scrapes /metrics there, and a browser shows the page: the loops side by side, their
// timing wheels, rates and lags, the longest turns, and the largest and slowest connections.
//
// A program with its own registry adds the server to it:
//
//	registry.MustRegister(loopmetrics.NewCollector(srv))
//
// A scrape reads counters that the loops have published, and wakes no loop. While the page is open,
// it asks each loop for its connections, at most a few thousand per second. While nobody looks at a
// server, this package costs it nothing.
//
// For OpenTelemetry use its bridge, go.opentelemetry.io/contrib/bridges/prometheus. Its
// NewMetricProducer accepts any Gatherer, such as the registry above.
package loopmetrics
