// Command timers measures loopwheel's timing wheel and Scheduler beside what else there is: heaps, time.AfterFunc and
// other timing wheels. All contenders take turns at each job, several rounds of it, so that a noisy machine is noisy
// for all of them; what counts are the ratios. Run it in the bench directory:
//
//	go run ./timers                      # everything, some minutes
//	go run ./timers -rounds 3 -run reset # jobs whose name contains "reset"
//
// It prints a table, and with -out writes timers.csv and SVG plots to a directory.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 5, "how often each contender does each job")
	n := flag.Int("n", 1_000_000, "timers that are pending")
	run := flag.String("run", "", "only jobs whose name contains this")
	only := flag.String("only", "", "only contenders whose name contains this")
	out := flag.String("out", "", "directory for timers.csv and the plots")
	flag.Parse()
	if *rounds < 1 || *n < 10 {
		log.Fatal("timers: -rounds needs 1 or more, -n 10 or more")
	}
	r := newResults()
	start := time.Now()
	for round := range *rounds {
		for _, j := range jobs {
			if strings.Contains(strings.Join(j.names, "\n"), *run) && (!j.once || round < 2) {
				runJob(r, j, *only, *n, fmt.Sprintf("round %d/%d, %s", round+1, *rounds, j.names[0]))
			}
		}
	}
	fmt.Fprintf(os.Stderr, "\r\033[Kdone in %v\n", time.Since(start).Round(time.Second))
	r.print(os.Stdout)
	if *out != "" {
		if err := r.write(*out); err != nil {
			log.Fatal(err)
		}
	}
}

func runJob(r *results, j job, only string, n int, progress string) {
	for _, k := range kinds {
		if !strings.Contains(k.name, only) || k.memoryOnly && j.names[0] != memoryJob {
			continue
		}
		fmt.Fprintf(os.Stderr, "\r\033[K%s: %s", progress, k.name)
		runtime.GC()
		for i, v := range j.run(k, n) {
			r.add(j.names[i], j.units[i], k.name, v)
		}
	}
}
