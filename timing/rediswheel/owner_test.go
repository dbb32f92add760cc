package rediswheel

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// Workers that come share the shards, and those that go leave theirs to the others; none is without
// an owner for long.
func TestOwnership(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 64})
		r := newRecorder()
		var stops []func() error
		for range 4 {
			stops = append(stops, start(t, q, r))
			time.Sleep(10 * time.Second)
		}
		s, err := q.Stats(ctx)
		if err != nil || s.Owners != 4 || s.Orphans != 0 {
			t.Errorf("%d owners, %d orphans, %v", s.Owners, s.Orphans, err)
		}
		for _, stop := range stops[:3] {
			must(t, stop())
		}
		time.Sleep(3 * DefaultRefresh)
		s, err = q.Stats(ctx)
		if err != nil || s.Owners != 1 || s.Orphans != 0 {
			t.Errorf("%d owners, %d orphans, %v", s.Owners, s.Orphans, err)
		}
		must(t, stops[3]())
	})
}

// An owner with more to do than places gets help: three workers with two places each are done in
// far less than the 30 s that one would take.
func TestHelp(t *testing.T) {
	virtually(t, func(t *testing.T) {
		ctx := context.Background()
		q := open(t, embedded(t), Config{Shards: 1, Concurrency: 2})
		r := newRecorder()
		r.fail = func(Task) error {
			time.Sleep(time.Second)
			return nil
		}
		var stops []func() error
		for range 3 {
			stops = append(stops, start(t, q, r))
		}
		time.Sleep(20 * time.Second)
		for i := range 60 {
			must(t, q.Add(ctx, Task{Key: fmt.Sprint(i)}))
		}
		time.Sleep(17 * time.Second)
		if s := q.Local(); s.Done != 60 {
			t.Errorf("%d of 60 were done in 17 s", s.Done)
		}
		for _, stop := range stops {
			must(t, stop())
		}
	})
}

// What idle workers ask of Redis does not grow with their number.
func TestIdleCost(t *testing.T) {
	claims := func(workers int) (n uint64) {
		virtually(t, func(t *testing.T) {
			q := open(t, embedded(t), Config{Shards: 4})
			var stops []func() error
			for range workers {
				stops = append(stops, start(t, q, newRecorder()))
			}
			time.Sleep(time.Minute)
			before := q.Local().Claims
			time.Sleep(time.Minute)
			n = q.Local().Claims - before
			for _, stop := range stops {
				must(t, stop())
			}
		})
		return n
	}
	one, some, many := claims(1), claims(6), claims(24)
	if some > one*11/10 || many > one*11/10 {
		t.Errorf("%d claims a minute of one worker, %d of six, %d of 24", one, some, many)
	}
}
