//go:build linux

package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

var body = make([]byte, 200)

// lives: how much a whole life costs: added while workers run, due at some time in the five seconds
// to come, done.
func lives(r *redisServer, s settings, out *measure.Results) error {
	return each(r, s.rounds, func(c contender) error {
		var done atomic.Int64
		u, err := r.during(func() error {
			stop := c.work(func(int) { done.Add(1) })
			defer stop()
			began := time.Now()
			due := func(n int) time.Time { return began.Add(5 * time.Second * time.Duration(n) / time.Duration(s.tasks)) }
			if err := addAll(c, s.tasks, due, body); err != nil {
				return err
			}
			return until(&done, s.tasks)
		})
		if err != nil {
			return err
		}
		n := float64(s.tasks)
		out.Add("per task: Redis CPU, µs", c.name(), u.redis.Seconds()*1e6/n)
		out.Add("per task: scripts", c.name(), u.scripts/n)
		out.Add("per task: µs in scripts", c.name(), u.inScripts/n)
		return nil
	})
}

func until(done *atomic.Int64, n int) error {
	for deadline := time.Now().Add(2 * time.Minute); int(done.Load()) < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d were done in two minutes", done.Load(), n)
		}
	}
	return nil
}

// lateness: 200 tasks a second, due at known times. A bare timer of the same process for each says
// what of that is the machine's.
func lateness(r *redisServer, s settings, out *measure.Results) error {
	n := int(200 * s.window.Seconds())
	return each(r, s.rounds, func(c contender) error {
		began := time.Now().Add(time.Second)
		due := func(i int) time.Time { return began.Add(s.window * time.Duration(i) / time.Duration(n)) }
		late, bare := make([]time.Duration, n), make([]time.Duration, n)
		var done, fired atomic.Int64
		stop := c.work(func(i int) {
			late[i] = time.Since(due(i))
			done.Add(1)
		})
		defer stop()
		for i := range n {
			time.AfterFunc(time.Until(due(i)), func() {
				bare[i] = time.Since(due(i))
				fired.Add(1)
			})
		}
		if err := addAll(c, n, due, body); err != nil {
			return err
		}
		if err := errors.Join(until(&done, n), until(&fired, n)); err != nil {
			return err
		}
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		out.Add("lateness: p50, ms", c.name(), ms(measure.Quantile(late, 0.5)))
		out.Add("lateness: p99, ms", c.name(), ms(measure.Quantile(late, 0.99)))
		out.Add("bare timers: p99, ms", c.name(), ms(measure.Quantile(bare, 0.99)))
		return nil
	})
}

// idle: what 32 workers cost that have nothing to do.
func idle(r *redisServer, s settings, out *measure.Results) error {
	return each(r, 1, func(c contender) error {
		for range 32 {
			defer c.work(func(int) {})()
		}
		time.Sleep(s.settle)
		u, err := r.during(func() error {
			time.Sleep(s.window)
			return nil
		})
		out.Add("32 idle workers: commands/s, with those in scripts", c.name(), u.commands/s.window.Seconds())
		out.Add("32 idle workers: ms of Redis' CPU a second", c.name(), u.redis.Seconds()*1e3/s.window.Seconds())
		return err
	})
}
