package rediswheel

import (
	"strings"
	"testing"
	"time"
)

// All workers are told who owns the first shard, and then one of the others watches it: neither all
// of them nor nobody, as each takes another for the one who does.
func TestOneWatchesTheFirstShard(t *testing.T) {
	virtually(t, func(t *testing.T) {
		q := open(t, embedded(t), Config{Shards: 4})
		for range 100 {
			workers := make([]*worker, 4)
			var ids []string
			for i := range workers {
				workers[i] = newWorker(q, HandlerFunc(nil))
				defer workers[i].close()
				ids = append(ids, workers[i].id)
			}
			leads := 0
			for i, w := range workers[1:] {
				w.loop.members = ids
				w.loop.shards[firstShard].owner = ids[(i+2)%4] // as it was before
				w.hear(message{"first", ids[:1]})
				if w.loop.lead {
					leads++
				}
			}
			if leads != 1 {
				t.Fatalf("%d of three watch", leads)
			}
		}
	})
}

// Who comes to own the first shard says so.
func TestOwnerOfTheFirstShardSaysSo(t *testing.T) {
	virtually(t, func(t *testing.T) {
		client := embedded(t)
		q := open(t, client, Config{Shards: 4})
		sub := client.Subscribe(t.Context(), q.channel)
		defer sub.Close()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer start(t, q, newRecorder())()
		for end := time.Now().Add(time.Minute); ; {
			m, err := sub.ReceiveTimeout(t.Context(), time.Until(end))
			if err != nil {
				t.Fatal("nobody says so: ", err)
			}
			if text, ok := m.(interface{ String() string }); ok && strings.Contains(text.String(), "first ") {
				return
			}
		}
	})
}
