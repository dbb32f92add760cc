// Command kv measures demos/kv beside redis-server, in turns, as ratios of the two.
//
//	go build -C ../demos -o /tmp/kv ./kv
//	go run ./kv -kv /tmp/kv                 requests per second and CPU time, by redis-benchmark
//	go run ./kv -kv /tmp/kv -quota 40       the same, each server with 40 % of a core, as root: so the
//	                                        servers are the limit, and not redis-benchmark
//	go run ./kv -kv /tmp/kv -run expiry     how late a million keys go, over a minute
//	go run ./kv -kv /tmp/kv -run burst      commands while a million keys go in one second
//
// It needs redis-server and redis-benchmark (apt-get install redis-server redis-tools).
package main

import (
	"flag"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/stalls"
)

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func main() {
	kv := flag.String("kv", "", "the `binary` of demos/kv")
	what := flag.String("run", "rates", "what to measure: rates, expiry or burst")
	rounds := flag.Int("rounds", 5, "rates: how many `times` each is measured")
	requests := flag.Int("n", 100_000, "rates: requests of a run without pipelining; with, it is eight times that")
	tests := flag.String("t", "set,get,incr,lpush", "rates: what redis-benchmark runs")
	pipelines := flag.String("P", "1,16", "rates: pipelining")
	threads := flag.Int("threads", 1, "rates: threads of redis-benchmark")
	quota := flag.Int("quota", 0, "rates: each server has this `percentage` of a core at most; 0 means all it can get")
	keys := flag.Int("keys", 1_000_000, "expiry, burst: how many keys")
	over := flag.Duration("over", time.Minute, "expiry: how long it takes until all have gone")
	stall := flag.Bool("stalls", false, "only tell when this machine's cores stall, until the input ends")
	flag.Parse()
	if *stall {
		stalls.Print()
		return
	}
	if *kv == "" {
		log.Fatal("kv: -kv is missing: the binary of demos/kv")
	}
	a, b, stop, err := startBoth(*kv)
	if err != nil {
		log.Fatal("kv: ", err)
	}
	switch *what {
	case "rates":
		if err = limitBoth(a, b, *quota); err != nil {
			break
		}
		r := rates{rounds: *rounds, requests: *requests, threads: *threads}
		err = r.compare(a, b, strings.Split(*tests, ","), strings.Split(*pipelines, ","))
	case "expiry":
		err = expiry(a, b, *keys, *over)
	case "burst":
		err = burst(a, b, *keys)
	default:
		err = fmt.Errorf("-run %s: want rates, expiry or burst", *what)
	}
	stop()
	if err != nil {
		log.Fatal("kv: ", err)
	}
}

func median(of []float64) float64 { return quantile(of, 0.5) }

// quantile returns the value that a part q of all do not exceed.
func quantile(of []float64, q float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[min(len(of)-1, int(q*float64(len(of))))]
}
