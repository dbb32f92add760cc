package loopmetrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/meter"
)

// A Collector exports the counters of a server as metrics. It is a prometheus.Collector.
type Collector struct {
	server *loop.Server
	bounds []float64
}

// NewCollector returns a Collector for s, for use in any registry. s need not have been started
// yet. Any goroutine may call the Collector's methods, also after s has ended.
//
// To register several servers, add a label for each: prometheus.WrapRegistererWith.
func NewCollector(s *loop.Server) *Collector {
	c := &Collector{server: s}
	for i := range meter.Buckets - 1 {
		c.bounds = append(c.bounds, meter.Bound(i).Seconds())
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range serverMetrics {
		ch <- m.desc
	}
	ch <- closedDesc
	ch <- bufferedLimitDesc
	ch <- unpolledDesc
	for _, m := range loopMetrics {
		ch <- m.desc
	}
	for _, m := range loopHistograms {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	st, loops := c.server.Stats(), c.server.Loops()
	for _, m := range serverMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&st))
	}
	for reason, n := range st.ClosedBy {
		ch <- prometheus.MustNewConstMetric(closedDesc, prometheus.CounterValue, float64(n), reason)
	}
	ch <- prometheus.MustNewConstMetric(bufferedLimitDesc, prometheus.GaugeValue, float64(bufferedLimit(c.server)))
	for i := range st.Loops {
		ls, name := &st.Loops[i], c.loop(i)
		for _, m := range loopMetrics {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(ls), name)
		}
		record := measured(loops[i])
		ch <- prometheus.MustNewConstMetric(unpolledDesc, prometheus.GaugeValue, record.Unpolled.Seconds(), name)
		for _, m := range loopHistograms {
			ch <- c.histogram(m.desc, m.value(&record), name)
		}
	}
}

// loop returns the label of a loop.
func (c *Collector) loop(i int) string { return strconv.Itoa(i) }

// histogram makes the counts cumulative, as Prometheus wants them.
func (c *Collector) histogram(d *prometheus.Desc, h *meter.Series, name string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(c.bounds))
	var total uint64
	for i, bound := range c.bounds {
		total += h.Counts[i]
		buckets[bound] = total
	}
	total += h.Counts[len(h.Counts)-1]
	return prometheus.MustNewConstHistogram(d, total, h.Sum.Seconds(), buckets, name)
}

// A metric is one value of what S counts.
type metric[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*S) float64
}

// A histogram is one of what a loop measures.
type histogram struct {
	desc  *prometheus.Desc
	value func(*meter.Record) *meter.Series
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("loopwheel_"+name, help, labels, nil)
}

func counter[S any](name, help string, value func(*S) uint64, labels ...string) metric[S] {
	return metric[S]{desc(name, help, labels...), prometheus.CounterValue, func(s *S) float64 { return float64(value(s)) }}
}

func gauge[S any](name, help string, value func(*S) float64, labels ...string) metric[S] {
	return metric[S]{desc(name, help, labels...), prometheus.GaugeValue, value}
}

// serverMetrics are those of the server as a whole.
var serverMetrics = []metric[loop.Stats]{
	counter("accepted_total", "Connections that the listeners accepted.", func(s *loop.Stats) uint64 { return s.Accepted }),
	counter("probes_total", "Accepted connections that ended before the first byte of a TLS handshake or PROXY header.", func(s *loop.Stats) uint64 { return s.Probes }),
	counter("moved_in_total", "Connections that came from the previous process; they are not in accepted_total.", func(s *loop.Stats) uint64 { return s.MovedIn }),
	counter("refused_total", "Connections and UDP peers that were refused, by a limit or by Accept.", func(s *loop.Stats) uint64 { return s.Refused }),
	counter("cut_total", "Connections that ended with output lost, or with work unfinished when the drain timed out.", func(s *loop.Stats) uint64 { return s.Cut }),
	counter("panics_total", "Panics of callbacks.", func(s *loop.Stats) uint64 { return s.Panics }),
	counter("tls_handshakes_total", "TLS handshakes completed.", func(s *loop.Stats) uint64 { return s.Handshakes }),
	counter("tls_handshakes_failed_total", "TLS handshakes that failed, or were cut.", func(s *loop.Stats) uint64 { return s.HandshakesFailed }),
	gauge("tls_handshakes_pending", "TLS handshakes that have begun: computed, queued, or waiting for their peers. Silent connections are none.", func(s *loop.Stats) float64 { return float64(s.HandshakesPending) }),
	gauge("offload_running", "Offloaded jobs that are running.", func(s *loop.Stats) float64 { return float64(s.Offloaded) }),
	gauge("offload_waiting", "Offloaded jobs that wait for a goroutine.", func(s *loop.Stats) float64 { return float64(s.OffloadedWaiting) }),
}

var closedDesc = desc("closed_total", "Connections that have ended, by what ended them; idle ones were evicted.", "reason")

var bufferedLimitDesc = desc("buffered_limit_bytes", "What the buffers of all loops may take (Server.Limits.MaxBuffered).")

const loopLabel = "loop"

var unpolledDesc = desc("unpolled_seconds", "How long the loop has not polled its sockets, by a probe that is still waiting; 0 without one.", loopLabel)

// loopMetrics are those of each loop.
var loopMetrics = []metric[loop.LoopStats]{
	gauge("connections", "Connections that are open, or closing.", func(s *loop.LoopStats) float64 { return float64(s.Conns) }, loopLabel),
	counter("messages_total", "Messages delivered to handlers.", func(s *loop.LoopStats) uint64 { return s.Messages }, loopLabel),
	counter("received_bytes_total", "Bytes received.", func(s *loop.LoopStats) uint64 { return s.BytesIn }, loopLabel),
	counter("sent_bytes_total", "Bytes that the system took to send.", func(s *loop.LoopStats) uint64 { return s.BytesOut }, loopLabel),
	gauge("timers", "Timers that are pending.", func(s *loop.LoopStats) float64 { return float64(s.Timers) }, loopLabel),
	counter("timers_fired_total", "Timers that have fired, the framework's own included.", func(s *loop.LoopStats) uint64 { return s.Fired }, loopLabel),
	gauge("mailbox_length", "Functions that wait in the mailbox.", func(s *loop.LoopStats) float64 { return float64(s.Mailbox) }, loopLabel),
	counter("moved_total", "Connections that have come from other loops (Conn.MoveTo).", func(s *loop.LoopStats) uint64 { return s.Moved }, loopLabel),
	counter("held_back_total", "Times that a connection's input began to wait for its output (Server.Limits.HoldBackAt).", func(s *loop.LoopStats) uint64 { return s.HeldBack }, loopLabel),
	gauge("buffered_bytes", "Bytes of buffers that count against Server.Limits.MaxBuffered.", func(s *loop.LoopStats) float64 { return float64(s.Buffered) }, loopLabel),
	gauge("lag_recent_max_seconds", "The longest lag of timers and mailbox in the last 10 to 20 seconds.", func(s *loop.LoopStats) float64 { return s.Lag.Seconds() }, loopLabel),
	gauge("turn_recent_max_seconds", "The longest turn, and so the longest callback, of the last 10 to 20 seconds.", func(s *loop.LoopStats) float64 { return s.Turn.Seconds() }, loopLabel),
	gauge("turn_max_seconds", "The longest turn since the start.", func(s *loop.LoopStats) float64 { return s.MaxTurn.Seconds() }, loopLabel),
	gauge("socket_wait_recent_max_seconds", "The longest wait of a probe, which stands for a ready socket, in the last 10 to 20 seconds.", func(s *loop.LoopStats) float64 { return s.SocketWait.Seconds() }, loopLabel),
	{desc("busy_seconds_total", "Time that the loop was busy, estimated.", loopLabel), prometheus.CounterValue, func(s *loop.LoopStats) float64 { return s.Busy.Seconds() }},
	counter("blocked_total", "Turns that took longer than Server.Debug.BlockedAfter.", func(s *loop.LoopStats) uint64 { return s.Blocked }, loopLabel),
}

var loopHistograms = []histogram{
	{desc("turn_seconds", "How long the loop is busy at a stretch; short turns are sampled.", loopLabel), func(r *meter.Record) *meter.Series { return &r.Turns }},
	{desc("timer_lateness_seconds", "How late timers run: the first of those that are due together.", loopLabel), func(r *meter.Record) *meter.Series { return &r.Late }},
	{desc("mailbox_wait_seconds", "How long posts and tells wait: the oldest of those that are taken together.", loopLabel), func(r *meter.Record) *meter.Series { return &r.Waited }},
	{desc("socket_wait_seconds", "How long a socket that is ready waits for the loop, by probes sent while it is busy.", loopLabel), func(r *meter.Record) *meter.Series { return &r.Ready }},
}
