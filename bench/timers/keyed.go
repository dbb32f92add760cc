//go:build linux

package main

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/zeromicro/go-zero/core/collection"

	"github.com/loopwheel/loopwheel/timing"
)

// keyedContender holds timers by strings.
type keyedContender struct {
	set    func(key string)
	remove func(key string)
	close  func()
}

const keyedFor = time.Minute

// makeKeyed returns the keyed contender of a kind, false if it has none. Those for any goroutine
// have the locks they need.
func makeKeyed(k kind) (c keyedContender, ok bool) {
	switch k.name {
	case "timing.Keyed":
		w := timing.NewKeyed[string, int](timing.KeyedConfig{}, nil)
		return keyedContender{
			set:    func(key string) { _ = w.Set(key, 1, keyedFor) },
			remove: func(key string) { w.Remove(key) },
			close:  func() { w.Stop() },
		}, true
	case "timing.KeyedWheel":
		w := timing.NewKeyedWheel[string, int](timing.New(timing.Config{}), nil)
		return keyedContender{
			set:    func(key string) { w.Set(key, 1, keyedFor) },
			remove: func(key string) { w.Remove(key) },
			close:  func() {},
		}, true
	case "timing.Scheduler":
		s := timing.NewScheduler(timing.SchedulerConfig{})
		return keyedContender{
			set:    func(key string) { _ = s.Set(key, keyedFor, nop) },
			remove: func(key string) { s.Remove(key) },
			close:  func() { s.Stop() },
		}, true
	case "map, time.AfterFunc":
		return mapOfTimers(), true
	case "go-zero":
		w, err := collection.NewTimingWheel(time.Millisecond, slots, func(_, _ any) {})
		if err != nil {
			panic(err)
		}
		return keyedContender{
			set:    func(key string) { _ = w.SetTimer(key, 1, keyedFor) },
			remove: func(key string) { _ = w.RemoveTimer(key) },
			close:  w.Stop,
		}, true
	}
	return c, false
}

// mapOfTimers is what most people write.
func mapOfTimers() keyedContender {
	var mu sync.Mutex
	timers := make(map[string]*time.Timer)
	remove := func(key string) {
		mu.Lock()
		defer mu.Unlock()
		if t := timers[key]; t != nil {
			t.Stop()
			delete(timers, key)
		}
	}
	return keyedContender{
		set: func(key string) {
			mu.Lock()
			defer mu.Unlock()
			timers[key] = time.AfterFunc(keyedFor, func() { remove(key) })
		},
		remove: remove,
		close: func() {
			for _, t := range timers {
				t.Stop()
			}
		},
	}
}

// keyedSetRemove sets a key and removes it, with n others pending.
func keyedSetRemove(k kind, n int) []float64 {
	c, ok := makeKeyed(k)
	if !ok {
		return nil
	}
	defer c.close()
	keys := make([]string, 2*n)
	for i := range keys {
		keys[i] = fmt.Sprintf("session-%07d", i)
	}
	pending, others := keys[:n], keys[n:]
	for _, key := range pending {
		c.set(key)
	}
	runtime.GC()
	i := 0
	return []float64{timed(1000, func() {
		for range 1000 {
			c.set(others[i])
			c.remove(others[i])
			i = (i + 1) % len(others)
		}
	})}
}
