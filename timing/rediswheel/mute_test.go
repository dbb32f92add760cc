package rediswheel

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A muteConn is a connection on which nothing comes any more, once silent is set.
type muteConn struct {
	net.Conn
	silent *atomic.Bool
}

func (c *muteConn) Read(b []byte) (n int, err error) {
	for {
		if n, err = c.Conn.Read(b); err != nil || !c.silent.Load() {
			return n, err
		}
	}
}

// A call waits for a Redis that does not answer as long as its context allows, and not as long as
// the client's timeouts.
func TestContextEndsWaiting(t *testing.T) {
	const long = time.Hour
	var silent atomic.Bool
	client := redis.NewClient(&redis.Options{
		Addr: miniredis.RunT(t).Addr(), ReadTimeout: long, WriteTimeout: long, DialTimeout: long,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &muteConn{c, &silent}, err
		},
	})
	t.Cleanup(func() { client.Close() })
	q := open(t, client, Config{})
	silent.Store(true)
	for name, f := range map[string]func(ctx context.Context) error{
		"Open":     func(ctx context.Context) error { _, err := Open(ctx, client, Config{}); return err },
		"Add":      func(ctx context.Context) error { return q.Add(ctx, Task{Key: "key"}) },
		"Add cron": func(ctx context.Context) error { return q.Add(ctx, Task{Key: "key", Cron: "@daily"}) },
		"AddBatch": func(ctx context.Context) error { return q.AddBatch(ctx, []Task{{Key: "key"}}) },
		"Cancel":   func(ctx context.Context) error { _, err := q.Cancel(ctx, "key"); return err },
		"Get":      func(ctx context.Context) error { _, err := q.Get(ctx, "key"); return err },
		"Result":   func(ctx context.Context) error { _, err := q.Result(ctx, "key"); return err },
		"Stats":    func(ctx context.Context) error { _, err := q.Stats(ctx); return err },
		"Pause":    q.Pause,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- f(ctx) }()
			select {
			case err := <-done:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("it does not return")
			}
		})
	}
}

// Run returns within StopTimeout and stopGrace although the subscription waits for a Redis that does
// not answer, for as long as the client's timeouts.
func TestRunStopsWhileRedisIsMute(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const long, stopTimeout = 5 * time.Minute, time.Second
		var silent atomic.Bool
		var conns sync.Map
		opt := *embedded(t).Options()
		dial := opt.Dialer
		opt.ReadTimeout = long
		opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			conns.Store(c, nil)
			return &muteConn{c, &silent}, err
		}
		client := redis.NewClient(&opt)
		t.Cleanup(func() {
			client.Close()
			conns.Range(func(c, _ any) bool { return c.(net.Conn).Close() == nil })
		})
		q := open(t, client, Config{StopTimeout: stopTimeout, Lease: time.Second, Refresh: 100 * time.Millisecond, OnError: func(Task, error) {}})
		stop := start(t, q, newRecorder())
		testkit.Pass(time.Minute)
		silent.Store(true)
		testkit.Pass(time.Minute) // the subscription is made anew
		began := time.Now()
		must(t, stop())
		if d := time.Since(began); d > stopTimeout+stopGrace {
			t.Errorf("it stopped after %v", d)
		}
	})
}
