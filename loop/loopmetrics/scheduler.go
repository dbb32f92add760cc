package loopmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/loopwheel/loopwheel/timing"
)

// A SchedulerCollector exports the counters of a timing.Scheduler or a timing.Keyed as metrics. It
// is a prometheus.Collector.
type SchedulerCollector struct {
	scheduler interface{ Stats() timing.SchedulerStats }
	descs     []*prometheus.Desc
}

// NewSchedulerCollector returns a SchedulerCollector for s. Each metric has the label scheduler
// with this name, so that one registry can contain several schedulers. Any goroutine may call the
// collector's methods.
func NewSchedulerCollector(name string, s interface{ Stats() timing.SchedulerStats }) *SchedulerCollector {
	c := &SchedulerCollector{scheduler: s}
	for _, m := range schedulerMetrics {
		d := prometheus.NewDesc("loopwheel_scheduler_"+m.name, m.help, nil, prometheus.Labels{"scheduler": name})
		c.descs = append(c.descs, d)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *SchedulerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *SchedulerCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.scheduler.Stats()
	for i, m := range schedulerMetrics {
		ch <- prometheus.MustNewConstMetric(c.descs[i], m.kind, m.value(&st))
	}
}

var schedulerMetrics = []struct {
	name, help string
	kind       prometheus.ValueType
	value      func(*timing.SchedulerStats) float64
}{
	{"timers", "Timers that are pending.", prometheus.GaugeValue,
		func(s *timing.SchedulerStats) float64 { return float64(s.Pending) }},
	{"fired_total", "Callbacks that were started.", prometheus.CounterValue,
		func(s *timing.SchedulerStats) float64 { return float64(s.Fired) }},
	{"stopped_total", "Timers that were stopped, removed or replaced.", prometheus.CounterValue,
		func(s *timing.SchedulerStats) float64 { return float64(s.Stopped) }},
	{"skipped_total", "Periods of periodic timers that were missed.", prometheus.CounterValue,
		func(s *timing.SchedulerStats) float64 { return float64(s.Skipped) }},
	{"panics_total", "Callbacks that panicked.", prometheus.CounterValue,
		func(s *timing.SchedulerStats) float64 { return float64(s.Panics) }},
	{"lateness_max_seconds", "The longest time between a deadline and the start of its callback.", prometheus.GaugeValue,
		func(s *timing.SchedulerStats) float64 { return s.LatenessMax.Seconds() }},
	{"lateness_p99_seconds", "99 percent of the callbacks were no later than this.", prometheus.GaugeValue,
		func(s *timing.SchedulerStats) float64 { return s.LatenessP99.Seconds() }},
}
