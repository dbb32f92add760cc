package wheelmetrics_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/timing/rediswheel"
	"github.com/loopwheel/loopwheel/timing/rediswheel/wheelmetrics"
)

// gather returns the metrics of one scrape: by name, and status if there is one.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() == "status" {
					name += " " + l.GetValue()
				} else if l.GetValue() != "orders" {
					t.Errorf("%s has the label %v", name, l)
				}
			}
			found[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

// What is in Redis is shown while it answers, and what this process has counted always.
func TestCollector(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr(), MaxRetries: -1})
	defer client.Close()
	ctx := context.Background()
	q, err := rediswheel.Open(ctx, client, rediswheel.Config{Name: "orders", Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range []rediswheel.Task{{Key: "now"}, {Key: "later", Delay: time.Hour}} {
		if err := q.Add(ctx, task); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(wheelmetrics.New(q))
	got := gather(t, r)
	for name, want := range map[string]float64{"rediswheel_up": 1, "rediswheel_tasks scheduled": 2, "rediswheel_tasks overdue": 1,
		"rediswheel_tasks dead": 0, "rediswheel_orphans": 2, "rediswheel_paused": 1, "rediswheel_added_total": 2, "rediswheel_in_flight": 0} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, %v; want %v", name, v, ok, want)
		}
	}
	m.Close()
	got = gather(t, r)
	if _, ok := got["rediswheel_tasks scheduled"]; ok || got["rediswheel_up"] != 0 || got["rediswheel_added_total"] != 2 {
		t.Errorf("without Redis: %v", got)
	}
}

// A scrape of several queues waits for a Redis that does not answer as long as for one.
func TestSilentRedis(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	var queues []*rediswheel.Queue
	for i := range 6 {
		q, err := rediswheel.Open(t.Context(), client, rediswheel.Config{Name: fmt.Sprint("orders", i)})
		if err != nil {
			t.Fatal(err)
		}
		queues = append(queues, q)
	}
	answer := make(chan struct{})
	defer close(answer)
	client.AddHook(silence(answer))
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(wheelmetrics.New(queues...))
	began := time.Now()
	families, err := r.Gather()
	if d := time.Since(began); err != nil || len(families) == 0 || d > 8*time.Second {
		t.Errorf("after %v: %d metrics, %v", d, len(families), err)
	}
}

// silence is a hook that holds pipelines up until the channel is closed.
type silence chan struct{}

func (s silence) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s silence) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s silence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		<-s
		return next(ctx, cmds)
	}
}
