package timing_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// A cache whose entries expire: each use of an entry moves its timer further away.
func ExampleScheduler() {
	s := timing.NewScheduler(timing.SchedulerConfig{})
	defer s.Stop()

	expired := make(chan string)
	for key, life := range map[string]time.Duration{"a": time.Minute, "b": 20 * time.Millisecond} {
		s.Set(key, life, func() { expired <- key })
	}
	s.Move("a", time.Hour) // used
	fmt.Println("expired:", <-expired)
	fmt.Println("left:", s.Len(), s.Has("a"), s.Remove("a"), s.Remove("a"))
	// Output:
	// expired: b
	// left: 1 true true false
}

func ExampleScheduler_AfterFunc() {
	s := timing.NewScheduler(timing.SchedulerConfig{})
	done := make(chan bool)
	never := s.AfterFunc(time.Hour, func() {})
	s.AfterFunc(time.Millisecond, func() { close(done) })
	<-done
	fmt.Println(never.Stop(), never.Stop())

	s.Stop()
	err := s.Set("key", 0, func() {})
	fmt.Println(errors.Is(err, timing.ErrStopped))
	// Output:
	// true false
	// true
}

// What is pending at shutdown is not lost: Stop returns it.
func ExampleScheduler_Stop() {
	s := timing.NewScheduler(timing.SchedulerConfig{})
	s.Set("later", 2*time.Hour, func() { fmt.Println("run at shutdown") })
	s.Set("sooner", time.Hour, func() {})
	for _, p := range s.Stop() {
		fmt.Println(p.Key)
		p.Func()
	}
	// Output:
	// sooner
	// later
	// run at shutdown
}

func ExampleScheduler_Drain() {
	s := timing.NewScheduler(timing.SchedulerConfig{})
	defer s.Stop()
	s.Set("k", time.Hour, func() {})
	n := s.Drain(func(p timing.Pending) { fmt.Println(p.Key) })
	fmt.Println(n, s.Len())
	// Output:
	// k
	// 1 0
}

// Callbacks that take long run on a bounded number of goroutines and delay nobody.
func ExampleScheduler_workers() {
	s := timing.NewScheduler(timing.SchedulerConfig{Workers: 8})
	defer s.Stop()
	slow, quick := make(chan bool), make(chan bool)
	s.AfterFunc(0, func() { <-slow })
	s.AfterFunc(time.Millisecond, func() { close(quick) })
	<-quick
	close(slow)
	fmt.Println("the quick one did not wait")
	// Output: the quick one did not wait
}
