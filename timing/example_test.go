package timing_test

import (
	"fmt"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// The owner of a Wheel tells it the time. Here time is just a number.
func Example() {
	w := timing.New(timing.Config{})
	w.At(30*time.Millisecond, func() { fmt.Println("thirty") })
	w.At(10*time.Millisecond, func() { fmt.Println("ten") })
	late := w.At(time.Hour, func() { fmt.Println("an hour") })

	fmt.Println(w.Advance(29*time.Millisecond, 0), "ran")
	when, _ := w.Next()
	fmt.Println("next at", when)
	fmt.Println(w.Advance(when, 0), "ran")
	fmt.Println("stopped:", w.Stop(late), "again:", w.Stop(late))
	// Output:
	// ten
	// 1 ran
	// next at 30ms
	// thirty
	// 1 ran
	// stopped: true again: false
}

// A periodic timer keeps to its rhythm when the owner is late, and makes one call for all that it
// missed.
func ExampleWheel_Every() {
	w := timing.New(timing.Config{})
	var now time.Duration
	w.Every(10*time.Millisecond, 10*time.Millisecond, func() { fmt.Println("at", now) })
	for _, now = range []time.Duration{10e6, 20e6, 57e6, 60e6} {
		w.Advance(now, 0)
	}
	fmt.Println("skipped", w.Stats().Skipped)
	// Output:
	// at 10ms
	// at 20ms
	// at 57ms
	// at 60ms
	// skipped 2
}

// An idle timeout: whatever is heard moves the one timer further away.
func ExampleWheel_Reset() {
	w := timing.New(timing.Config{})
	idle := w.At(time.Second, func() { fmt.Println("idle") })
	w.Advance(900*time.Millisecond, 0)
	fmt.Println(w.Reset(idle, 1900*time.Millisecond))
	w.Advance(time.Second, 0)
	w.Advance(1900*time.Millisecond, 0)
	fmt.Println(w.Reset(idle, 3*time.Second))
	// Output:
	// true
	// idle
	// false
}

// A budget bounds the work of one Advance, so that a storm of expiries lets an event loop do I/O in
// between.
func ExampleWheel_Advance_budget() {
	w := timing.New(timing.Config{})
	for range 1000 {
		w.At(time.Millisecond, func() {})
	}
	now := time.Millisecond
	fmt.Println(w.Advance(now, 400), w.Advance(now, 400))
	when, _ := w.Next()
	fmt.Println("left", w.Len(), "and due:", when <= now)
	fmt.Println(w.Advance(now, 400))
	// Output:
	// 400 400
	// left 200 and due: true
	// 200
}

// At shutdown Drain says what was still pending, in order.
func ExampleWheel_Drain() {
	w := timing.New(timing.Config{})
	w.At(2*time.Second, func() {})
	w.At(time.Second, func() {})
	w.Drain(func(when time.Duration) { fmt.Println(when) })
	fmt.Println(w.Len())
	// Output:
	// 1s
	// 2s
	// 0
}
