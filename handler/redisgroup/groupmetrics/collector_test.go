package groupmetrics_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/handler/redisgroup/groupmetrics"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// gather returns the metrics of one scrape, by name and hub.
func gather(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			found[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

// Two hubs are shown side by side, each with its own numbers.
func TestCollector(t *testing.T) {
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	r := prometheus.NewPedanticRegistry()
	hubs := make(map[string]*redisgroup.Hub)
	for _, name := range []string{"chat", "game"} {
		h, err := redisgroup.Open(t.Context(), client, redisgroup.Config{Prefix: name})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close(t.Context())
		hubs[name] = h
		r.MustRegister(groupmetrics.New(name, h))
	}
	room, err := hubs["chat"].Ordered("red")
	if err != nil {
		t.Fatal(err)
	}
	const said = 3
	for range said {
		if err := room.Broadcast([]byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, "all is published", func() bool { return hubs["chat"].Stats().Published == said })
	got := gather(t, r)
	if len(got) != 18 {
		t.Errorf("%d metrics: %v", len(got), got)
	}
	for name, want := range map[string]float64{
		"redisgroup_published_total chat": said, "redisgroup_published_total game": 0, "redisgroup_queued chat": 0, "redisgroup_lost_total chat": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, %v; want %v", name, v, ok, want)
		}
	}
}
