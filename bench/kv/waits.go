package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A core that a bare sleeping thread gets at once is not always got by a thread that works: the
// scheduler lets who has used less go first. So a key that is late although no core stalled is
// looked up here: the kernel counts how long each thread was ready to run and did not.

const (
	waitsEvery = 10 * time.Millisecond

	// waited is how long threads must have been ready within one or two of these to explain a key.
	waited = time.Millisecond
)

// A wait is how long threads of a process were ready and did not run, of those between two looks.
type wait struct {
	from, to time.Time
	long     time.Duration // of the thread that waited longest
}

// watchWaits looks at all threads of these processes until the function that it returns is called.
func watchWaits(pids ...int) (stop func() []wait) {
	end, all := make(chan struct{}), make(chan []wait)
	go func() {
		var seen []wait
		before, from := ready(pids), time.Now()
		tick := time.NewTicker(waitsEvery)
		defer tick.Stop()
		for {
			select {
			case <-end:
				all <- seen
				return
			case <-tick.C:
			}
			now, to := ready(pids), time.Now()
			var long time.Duration
			for thread, t := range now {
				long = max(long, t-before[thread])
			}
			seen = append(seen, wait{from, to, long})
			before, from = now, to
		}
	}()
	return func() []wait { close(end); return <-all }
}

// ready returns how long each thread of these processes has been ready and did not run.
func ready(pids []int) map[string]time.Duration {
	of := make(map[string]time.Duration)
	for _, pid := range pids {
		files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
		for _, file := range files {
			text, _ := os.ReadFile(file)
			if fields := strings.Fields(string(text)); len(fields) == 3 { // running, ready, times
				n, _ := strconv.ParseInt(fields[1], 10, 64)
				of[file] = time.Duration(n)
			}
		}
	}
	return of
}

// hadToWait reports whether a thread waited for a core while g was late.
func hadToWait(waits []wait, g gone) bool {
	i, _ := slices.BinarySearchFunc(waits, g.due, func(w wait, t time.Time) int { return w.to.Compare(t) })
	for ; i < len(waits) && waits[i].from.Before(g.at); i++ {
		if waits[i].long >= waited {
			return true
		}
	}
	return false
}

// tellMoments tells when keys were late for which the machine gives no reason.
func tellMoments(late []gone) {
	const apart = 5 * time.Millisecond
	const most = 10
	type moment struct {
		keys int
		most time.Duration
	}
	moments := make(map[time.Time]moment) // by when the first of them came
	var at, last time.Time
	for _, g := range late {
		if g.at.Sub(last) > apart {
			at = g.at
		}
		m := moments[at]
		moments[at], last = moment{m.keys + 1, max(m.most, g.late())}, g.at
	}
	for i, at := range slices.SortedFunc(maps.Keys(moments), time.Time.Compare) {
		if i == most {
			fmt.Printf("  and %d moments more\n", len(moments)-most)
			return
		}
		fmt.Printf("  unexplained at %s: %d keys, late by up to %.2f ms\n", at.Format("15:04:05.000"),
			moments[at].keys, ms(moments[at].most))
	}
}
