// Package groupmetrics exports metrics of redisgroup hubs to Prometheus. It is a separate package
// so that programs without Prometheus do not link it.
package groupmetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
)

// A metric is a number of a hub.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *redisgroup.Stats) uint64
}

type collector struct {
	hub     *redisgroup.Hub
	metrics []metric
}

// New returns a collector of a hub's Stats, with name as the label hub. A scrape does not query
// Redis. Hubs in one registry must have different names. Any goroutine may call the collector.
func New(name string, hub *redisgroup.Hub) prometheus.Collector {
	c := &collector{hub: hub}
	add := func(kind prometheus.ValueType, what, help string, value func(s *redisgroup.Stats) uint64) {
		desc := prometheus.NewDesc("redisgroup_"+what, help, nil, prometheus.Labels{"hub": name})
		c.metrics = append(c.metrics, metric{desc, kind, value})
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	add(gauge, "rooms", "Rooms with members in this process, or that had some a moment ago; users count as rooms.",
		func(s *redisgroup.Stats) uint64 { return uint64(s.Rooms) })
	add(gauge, "queued", "Messages that wait for Redis.",
		func(s *redisgroup.Stats) uint64 { return uint64(s.Queued) })
	add(counter, "published_total", "Messages that Redis took.",
		func(s *redisgroup.Stats) uint64 { return s.Published })
	add(counter, "lost_total", "Messages that Redis did not take, or may not have.",
		func(s *redisgroup.Stats) uint64 { return s.Lost })
	add(counter, "refused_total", "Messages that were not queued, as too much waited for Redis.",
		func(s *redisgroup.Stats) uint64 { return s.Refused })
	add(counter, "received_total", "Messages from Redis.",
		func(s *redisgroup.Stats) uint64 { return s.Received })
	add(counter, "caught_up_total", "Entries that were read because they had been missed.",
		func(s *redisgroup.Stats) uint64 { return s.CaughtUp })
	add(counter, "gaps_total", "Gaps that were reported to members.",
		func(s *redisgroup.Stats) uint64 { return s.Gaps })
	add(counter, "connects_total", "Connections for subscriptions that were made.",
		func(s *redisgroup.Stats) uint64 { return s.Connects })
	return c
}

// Describe says which metrics there are.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect says what they are.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	s := c.hub.Stats()
	for _, m := range c.metrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.value(&s)))
	}
}
