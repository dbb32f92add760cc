package rediswheel

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// zoneFile is a zone as RFC 8536 has it: version 1, one type, UTC, and its name.
const zoneFile = "TZif" + "\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + // UT indicators, standard indicators, leap seconds
	"\x00\x00\x00\x00" + "\x00\x00\x00\x01" + "\x00\x00\x00\x04" + // transitions, types, bytes of names
	"\x00\x00\x00\x00" + "\x00" + "\x00" + "ZON\x00"

// A worker that lacks a task's time zone gives its shard up, and a worker that has the zone runs
// the task.
func TestZoneOfAnotherWorker(t *testing.T) {
	ctx := context.Background()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer client.Close()
	q := open(t, client, Config{Shards: 1})
	must(t, q.Add(ctx, Task{Key: "k", Every: time.Hour, Delay: time.Millisecond}))
	task := Task{Cron: "@yearly", Zone: "Test/Zone"}
	record, err := task.record()
	must(t, err)
	must(t, client.HSet(ctx, q.keys[0][3], "k", record).Err())

	j := job{Addr: m.Addr(), Cfg: workerConfig{Concurrency: 1, Lease: time.Minute, Refresh: 100 * time.Millisecond}}
	lacks := startProcess(t, j)
	testkit.Eventually(t, "the worker without the zone has seen the task", func() bool {
		i, err := q.Get(ctx, "k")
		return err == nil && i.Status == Retrying
	})
	zones := t.TempDir()
	must(t, os.Mkdir(filepath.Join(zones, "Test"), 0o755))
	must(t, os.WriteFile(filepath.Join(zones, "Test", "Zone"), []byte(zoneFile), 0o644))
	t.Setenv("ZONEINFO", zones)
	has := startProcess(t, j)
	testkit.Eventually(t, "the worker with the zone has run the task", func() bool {
		n, err := client.HGet(ctx, "runs", "k").Int()
		return err == nil && n == 1
	})
	if r := lacks.stop(t); r.done != 0 {
		t.Errorf("the worker without the zone has done %d tasks, want 0", r.done)
	}
	if r := has.stop(t); r.done != 1 {
		t.Errorf("the worker with the zone has done %d tasks, want 1", r.done)
	}
}
