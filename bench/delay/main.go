//go:build linux

// Command delay measures timing/rediswheel beside hibiken/asynq, in turns, on a redis-server that
// it starts. It fills the table Delays on Redis of docs/performance.md:
//
//	go run ./delay                        # three rounds: five minutes
//	go run ./delay -quick
//
// It needs the program redis-server.
package main

import (
	"flag"
	"log"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// settings are what the command line says.
type settings struct {
	rounds, tasks int
	window        time.Duration // of idle workers, and of lateness
	settle        time.Duration // until all workers have found their place
}

func main() {
	measure.Begin("delay")
	var s settings
	flag.IntVar(&s.rounds, "rounds", 3, "measure this often, in turns")
	flag.IntVar(&s.tasks, "tasks", 20_000, "tasks that live in each round")
	flag.DurationVar(&s.window, "for", 10*time.Second, "how long to look at idle workers, and at lateness")
	only := flag.String("only", "", "only this: life, lateness or idle")
	docs := flag.String("docs", "", measure.Docs)
	quick := flag.Bool("quick", false, "one short round")
	flag.Parse()
	s.settle = 8 * time.Second
	if *quick {
		s = settings{rounds: 1, tasks: 4000, window: 2 * time.Second, settle: 2 * time.Second}
	}
	r, err := startRedis()
	measure.Check(err)
	out := &measure.Results{Base: "asynq"}
	for _, m := range []struct {
		name string
		do   func(*redisServer, settings, *measure.Results) error
	}{{"life", lives}, {"lateness", lateness}, {"idle", idle}} {
		if !strings.Contains(m.name, *only) {
			continue
		}
		measure.Progress("%s", m.name)
		if err := m.do(r, s, out); err != nil {
			r.Stop()
			log.Fatalf("%s: %v", m.name, err)
		}
	}
	r.Stop()
	measure.Progress("")
	measure.Check(out.Show("delays", *docs))
}
