package main

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

var body = make([]byte, 200)

func later(int) time.Time { return time.Now().Add(time.Hour) }

// adds: how much adding a task costs.
func adds(r *redisServer, s settings, out *results) error {
	return each(r, s.rounds, func(c contender) error {
		u, took, err := r.during(func() error { return addAll(c, s.tasks, later, body) })
		if err != nil {
			return err
		}
		n := float64(s.tasks)
		out.add("add: tasks/s", c.name(), n/took.Seconds())
		out.add("add: tasks per CPU second of Redis", c.name(), n/u.redis.Seconds())
		out.add("add: tasks per CPU second of the program", c.name(), n/u.ours.Seconds())
		out.add("add: µs in scripts per task (commandstats)", c.name(), u.scripts/n)
		return nil
	})
}

// runs: how much a whole life costs: added while workers run, due at some time in the five seconds
// to come, done.
func runs(r *redisServer, s settings, out *results) error {
	return each(r, s.rounds, func(c contender) error {
		var done atomic.Int64
		u, took, err := r.during(func() error {
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
		out.add("life: seconds for all", c.name(), took.Seconds())
		out.add("life: tasks per CPU second of Redis", c.name(), n/u.redis.Seconds())
		out.add("life: tasks per CPU second of the program", c.name(), n/u.ours.Seconds())
		out.add("life: µs in scripts per task (commandstats)", c.name(), u.scripts/n)
		out.add("life: scripts per task", c.name(), u.scriptsCalls/n)
		out.add("life: µs of Redis' CPU per task", c.name(), u.redis.Seconds()*1e6/n)
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

// lateness: 2,000 tasks over ten seconds, due at known times. A bare timer of the same process for
// each says what of that is the machine's.
func lateness(r *redisServer, s settings, out *results) error {
	const n, over = 2000, 10 * time.Second
	return each(r, s.rounds, func(c contender) error {
		began := time.Now().Add(time.Second)
		due := func(n_ int) time.Time { return began.Add(over * time.Duration(n_) / n) }
		late, bare := make([]time.Duration, n), make([]time.Duration, n)
		var done, fired atomic.Int64
		stop := c.work(func(n int) {
			late[n] = time.Since(due(n))
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
		for _, of := range []struct {
			what string
			late []time.Duration
		}{{"lateness", late}, {"lateness of bare timers", bare}} {
			slices.Sort(of.late)
			out.add(of.what+": least, ms", c.name(), ms(of.late[0]))
			out.add(of.what+": p50, ms", c.name(), ms(of.late[n/2]))
			out.add(of.what+": p99, ms", c.name(), ms(of.late[n*99/100]))
			out.add(of.what+": most, ms", c.name(), ms(of.late[n-1]))
		}
		return nil
	})
}

// idle: what workers cost that have nothing to do.
func idle(r *redisServer, s settings, out *results) error {
	for _, workers := range []int{1, 8, 32} {
		err := each(r, 1, func(c contender) error {
			for range workers {
				defer c.work(func(int) {})()
			}
			time.Sleep(8 * time.Second) // so that all have found their place
			u, took, err := r.during(func() error {
				time.Sleep(s.idle)
				return nil
			})
			per := func(v float64) float64 { return v / took.Seconds() }
			out.add(fmt.Sprintf("idle, %2d workers: commands/s, those in scripts included", workers), c.name(), per(u.commands))
			out.add(fmt.Sprintf("idle, %2d workers: scripts/s", workers), c.name(), per(u.scriptsCalls))
			out.add(fmt.Sprintf("idle, %2d workers: ms of Redis' CPU per s", workers), c.name(), per(u.redis.Seconds()*1e3))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// memory: bytes of Redis' memory per task that waits, with 200 bytes of body.
func memory(r *redisServer, s settings, out *results) error {
	return each(r, 1, func(c contender) error {
		u, _, err := r.during(func() error { return addAll(c, s.memory, later, body) })
		out.add(fmt.Sprintf("memory: bytes per task of 200, %d tasks", s.memory), c.name(), u.usedMemory/float64(s.memory))
		return err
	})
}
