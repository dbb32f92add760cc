package timing_test

import (
	"fmt"
	"time"

	"github.com/loopwheel/loopwheel/timing"
)

// A cache whose entries have a time to live. Each use of one makes it live longer.
func ExampleKeyed() {
	gone := make(chan string)
	cache := timing.NewKeyed(timing.KeyedConfig{}, func(expired []timing.Entry[string, int]) {
		for _, e := range expired {
			gone <- e.Key
		}
	})
	defer cache.Stop()

	cache.Set("a", 1, time.Minute)
	cache.Set("b", 2, 20*time.Millisecond)
	if v, ok := cache.Get("a"); ok {
		cache.Move("a", time.Hour) // used
		fmt.Println("a is", v)
	}
	fmt.Println("expired:", <-gone)
	fmt.Println("left:", cache.Len())
	// Output:
	// a is 1
	// expired: b
	// left: 1
}

// go-zero's TimingWheel: SetTimer, MoveTimer, RemoveTimer and Drain.
func ExampleKeyed_goZero() {
	wheel := timing.NewKeyed(timing.KeyedConfig{Tick: time.Second}, func(expired []timing.Entry[string, string]) {
		for _, e := range expired {
			fmt.Println("execute", e.Key, e.Value)
		}
	})
	wheel.Set("first", "1", 5*time.Second)
	wheel.Set("second", "2", 10*time.Second)
	wheel.Set("third", "3", 15*time.Second)
	fmt.Println("moved:", wheel.Move("first", 20*time.Second) == nil)
	_, ok := wheel.Remove("second")
	fmt.Println("removed:", ok)

	n := wheel.Drain(func(key, value string) { fmt.Println("drained", key, value) })
	fmt.Println(n, "drained,", wheel.Len(), "left")
	wheel.Stop()
	// Output:
	// moved: true
	// removed: true
	// drained third 3
	// drained first 1
	// 2 drained, 0 left
}

// A TimingWheel with listeners, as Java programs have it: elements expire, and all who listen are
// told.
func ExampleKeyed_listeners() {
	var listeners []func(element string)
	wheel := timing.NewKeyed(timing.KeyedConfig{}, func(expired []timing.Entry[string, struct{}]) {
		for _, e := range expired {
			for _, listen := range listeners {
				listen(e.Key)
			}
		}
	})
	defer wheel.Stop()
	done := make(chan bool)
	listeners = append(listeners,
		func(element string) { fmt.Println("log:", element, "expired") },
		func(element string) { done <- true })

	wheel.Set("element", struct{}{}, time.Millisecond) // add
	wheel.Set("other", struct{}{}, time.Minute)
	wheel.Remove("other")
	<-done
	// Output: log: element expired
}
