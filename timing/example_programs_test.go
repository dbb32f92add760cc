package timing_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// An echo server with the semantics of SetTimeout: a connection that says nothing for that long is
// closed, and each line it says gives it as long again. (Package loop has that as IdleTimeout.)
func ExampleJob_Reset() {
	const timeout = 2 * time.Second
	s := timing.NewScheduler(timing.SchedulerConfig{})
	defer s.Stop()
	serve := func(c net.Conn) {
		defer c.Close()
		silence := s.AfterFunc(timeout, func() { c.Close() })
		defer silence.Stop()
		for lines := bufio.NewScanner(c); lines.Scan(); {
			silence.Reset(timeout)
			fmt.Fprintln(c, lines.Text())
		}
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	go func() {
		for c, err := ln.Accept(); err == nil; c, err = ln.Accept() {
			go serve(c)
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Now()
	r := bufio.NewReader(c)
	for _, word := range []string{"hello", "again"} {
		fmt.Fprintln(c, word)
		line, _ := r.ReadString('\n')
		fmt.Print(line)
	}
	_, err = r.ReadByte() // silence, until the server closes
	fmt.Println(errors.Is(err, io.EOF), time.Since(start) >= timeout)
	// Output:
	// hello
	// again
	// true true
}

// AddTask and RemoveTask: a key, a function, and the time at which it is called.
func ExampleScheduler_SetAt() {
	s := timing.NewScheduler(timing.SchedulerConfig{})
	defer s.Stop()
	done := make(chan bool)
	s.SetAt("test1", time.Now().Add(10*time.Millisecond), func() { fmt.Println("task test1"); close(done) })
	s.SetAt("test2", time.Now().Add(time.Minute), func() { fmt.Println("task test2") })
	<-done
	fmt.Println("removed:", s.Remove("test2"))
	// Output:
	// task test1
	// removed: true
}

// Try again, twice as late each time.
func ExampleScheduler_AfterFunc_backOff() {
	s := timing.NewScheduler(timing.SchedulerConfig{})
	defer s.Stop()
	done := make(chan bool)
	var try func(wait time.Duration, n int)
	try = func(wait time.Duration, n int) {
		if n == 4 {
			fmt.Println("attempt 4: connected")
			close(done)
			return
		}
		fmt.Printf("attempt %d: failed, next in %v\n", n, wait)
		s.AfterFunc(wait, func() { try(min(2*wait, time.Second), n+1) })
	}
	try(time.Millisecond, 1)
	<-done
	// Output:
	// attempt 1: failed, next in 1ms
	// attempt 2: failed, next in 2ms
	// attempt 3: failed, next in 4ms
	// attempt 4: connected
}

// A custom schedule returns the time of the next call, like those of cron libraries.
func ExampleScheduler_At_schedule() {
	s := timing.NewScheduler(timing.SchedulerConfig{})
	defer s.Stop()
	done := make(chan bool)
	schedule := atQuarters{10 * time.Millisecond}

	n := 0
	var run func(t time.Time)
	run = func(t time.Time) {
		s.At(t, func() {
			run(schedule.Next(t)) // from t, not from now: a late call does not put off the rest
			if n++; n == 3 {
				close(done)
			}
		})
	}
	run(schedule.Next(time.Now()))
	<-done
	fmt.Println("three calls")
	// Output: three calls
}

// atQuarters is a schedule: at each multiple of a period of the wall clock.
type atQuarters struct{ period time.Duration }

func (q atQuarters) Next(t time.Time) time.Time { return t.Truncate(q.period).Add(q.period) }

// A deadline of 7,100 s and one of 7 days, on the same wheel of milliseconds: which level they are
// on at first, and how often they move down before they are called. docs/wheel.md follows them.
func ExampleWheel_Stats() {
	var now time.Duration
	w := timing.New(timing.Config{})
	call := func() { fmt.Println("called at", now, "after", w.Stats().Cascaded, "steps down") }

	for _, d := range []time.Duration{7100 * time.Second, 7 * 24 * time.Hour} {
		now = 0
		w = timing.New(timing.Config{})
		w.At(d, call)
		for level, n := range w.Stats().Levels {
			if n > 0 {
				fmt.Println(d, "is on level", level)
			}
		}
		for wakes := 0; w.Len() > 0; wakes++ {
			now, _ = w.Next()
			w.Advance(now, 0)
		}
	}
	// Output:
	// 1h58m20s is on level 3
	// called at 1h58m20s after 3 steps down
	// 168h0m0s is on level 4
	// called at 168h0m0s after 4 steps down
}

// Workerman's heartbeat: each connection notes when it was heard, and a timer that comes by every
// 10 s closes those that were not for 55 s.
func ExampleWheel_Every_heartbeat() {
	type connection struct {
		id    int
		heard time.Duration
	}
	var now time.Duration
	w := timing.New(timing.Config{})
	connections := map[int]*connection{1: {id: 1}, 2: {id: 2}}
	w.Every(10*time.Second, 10*time.Second, func() {
		for id, c := range connections {
			if now-c.heard > 55*time.Second {
				fmt.Println("close", id, "at", now)
				delete(connections, id)
			}
		}
	})
	w.Every(20*time.Second, 20*time.Second, func() { connections[2].heard = now }) // 2 says something
	for now = 0; now < 5*time.Minute; now += time.Second {
		w.Advance(now, 0)
	}
	fmt.Println(len(connections), "left")
	// Output:
	// close 1 at 1m0s
	// 1 left
}
