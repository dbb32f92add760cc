// Package wheelmetrics exports metrics of rediswheel queues to Prometheus. It is a separate package
// so that programs without Prometheus do not link it.
package wheelmetrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

// patience is how long a scrape waits for Redis.
const patience = 2 * time.Second

// A gauge is a number of a queue in Redis, a counter one of this process.
type gauge struct {
	desc  *prometheus.Desc
	label string
	value func(s *rediswheel.Stats) float64
}

type counter struct {
	desc  *prometheus.Desc
	value func(s *rediswheel.Stats) uint64
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("rediswheel_"+name, help, append([]string{"queue"}, labels...), nil)
}

var (
	up    = desc("up", "1 if Redis answered the scrape within two seconds, else 0.")
	tasks = desc("tasks", "Tasks in Redis: scheduled includes overdue and retrying.", "status")

	gauges = []gauge{
		{tasks, "scheduled", func(s *rediswheel.Stats) float64 { return float64(s.Scheduled) }},
		{tasks, "overdue", func(s *rediswheel.Stats) float64 { return float64(s.Overdue) }},
		{tasks, "retrying", func(s *rediswheel.Stats) float64 { return float64(s.Retrying) }},
		{tasks, "running", func(s *rediswheel.Stats) float64 { return float64(s.Running) }},
		{tasks, "dead", func(s *rediswheel.Stats) float64 { return float64(s.Dead) }},
		{desc("late_seconds", "How long the first overdue task has been due."), "", func(s *rediswheel.Stats) float64 { return s.Late.Seconds() }},
		{desc("owners", "Workers that own shards."), "", func(s *rediswheel.Stats) float64 { return float64(s.Owners) }},
		{desc("orphans", "Shards that no worker owns."), "", func(s *rediswheel.Stats) float64 { return float64(s.Orphans) }},
		{desc("paused", "1 if the queue is paused, else 0."), "", func(s *rediswheel.Stats) float64 {
			if s.Paused {
				return 1
			}
			return 0
		}},
	}

	inFlight = desc("in_flight", "Tasks that workers of this process hold.")
	counters = []counter{
		{desc("added_total", "Tasks added or replaced by this process."), func(s *rediswheel.Stats) uint64 { return s.Added }},
		{desc("cancelled_total", "Tasks cancelled by this process before they ran."), func(s *rediswheel.Stats) uint64 { return s.Cancelled }},
		{desc("claimed_total", "Tasks taken from Redis by this process."), func(s *rediswheel.Stats) uint64 { return s.Claimed }},
		{desc("done_total", "Tasks done by this process."), func(s *rediswheel.Stats) uint64 { return s.Done }},
		{desc("failed_total", "Attempts that failed in this process."), func(s *rediswheel.Stats) uint64 { return s.Failed }},
		{desc("died_total", "Tasks that became dead letters: by MaxAttempts, Permanent or MaxDeliveries."), func(s *rediswheel.Stats) uint64 { return s.Died }},
		{desc("purged_total", "Dead tasks that this process deleted because of MaxDead and DeadAge."), func(s *rediswheel.Stats) uint64 { return s.Purged }},
		{desc("stale_total", "Ends of runs that Redis refused, as the task was not this process' any more."), func(s *rediswheel.Stats) uint64 { return s.Stale }},
		{desc("recovered_total", "Tasks put back after their worker was lost."), func(s *rediswheel.Stats) uint64 { return s.Recovered }},
		{desc("errors_total", "Errors of Redis that workers of this process saw."), func(s *rediswheel.Stats) uint64 { return s.Errors }},
	}
)

type collector []*rediswheel.Queue

// New returns a collector of queues. Their names must differ, and are the label queue. A scrape
// queries Redis once for each queue, for all at the same time. If Redis does not answer, the scrape
// still has the counters of this process. Any goroutine may call the collector.
func New(queues ...*rediswheel.Queue) prometheus.Collector { return collector(queues) }

// Describe says which metrics there are.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- up
	ch <- inFlight
	for i, g := range gauges {
		if i == 0 || g.desc != gauges[i-1].desc {
			ch <- g.desc
		}
	}
	for _, n := range counters {
		ch <- n.desc
	}
}

// Collect looks at the queues.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	var all sync.WaitGroup
	for _, q := range c {
		all.Go(func() { collect(q, ch) })
	}
	all.Wait()
}

func collect(q *rediswheel.Queue, ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := q.Stats(ctx)
	answered := 1.0
	if err != nil {
		answered, s = 0, q.Local()
	}
	ch <- prometheus.MustNewConstMetric(up, prometheus.GaugeValue, answered, q.Name())
	ch <- prometheus.MustNewConstMetric(inFlight, prometheus.GaugeValue, float64(s.InFlight), q.Name())
	for _, g := range gauges {
		labels := []string{q.Name()}
		if g.label != "" {
			labels = append(labels, g.label)
		}
		if err == nil {
			ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(&s), labels...)
		}
	}
	for _, n := range counters {
		ch <- prometheus.MustNewConstMetric(n.desc, prometheus.CounterValue, float64(n.value(&s)), q.Name())
	}
}
