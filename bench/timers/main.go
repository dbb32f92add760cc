// Command timers measures loopwheel's timing wheel and Scheduler beside what else there is: heaps,
// time.AfterFunc and other timing wheels. All contenders take turns at each job, several rounds of
// it, so that a noisy machine is noisy for all of them; what counts are the ratios. Run it in the
// bench directory:
//
//	go run ./timers                      # everything, some minutes
//	go run ./timers -rounds 3 -run reset # jobs whose name contains "reset"
//	go run ./timers -rounds 9 -beside    # the wheel beside a heap with 10 k, 100 k and 1 M timers
//
// It prints a table, and with -out writes timers.csv and SVG plots to a directory.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	rounds := flag.Int("rounds", 5, "how often each contender does each job")
	n := flag.Int("n", 1_000_000, "timers that are pending")
	run := flag.String("run", "", "only jobs whose name contains this, or one of these with | between")
	only := flag.String("only", "", "only contenders whose name contains this, or one of these with | between")
	out := flag.String("out", "", "directory for timers.csv and the plots")
	besides := flag.Bool("beside", false, "only the wheel and the 4-ary heap, with 10 k, 100 k and 1 M timers, as a table in Markdown")
	child := flag.String("child", "", "used by the program itself: do one job, for one contender")
	flag.Parse()
	if *child != "" {
		runChild(*child, *n)
		return
	}
	if *rounds < 1 || *n < 10 {
		log.Fatal("timers: -rounds needs 1 or more, -n 10 or more")
	}
	if *besides {
		beside(os.Stdout, []int{10_000, 100_000, 1_000_000}, *rounds)
		return
	}
	r := newResults()
	start := time.Now()
	for round := range *rounds {
		for _, j := range jobs {
			if matches(*run, strings.Join(j.names, "\n")) && (!j.once || round < 2) {
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

// matches reports whether a name contains one of the parts that have | between.
func matches(parts, name string) bool {
	return slices.ContainsFunc(strings.Split(parts, "|"), func(part string) bool { return strings.Contains(name, part) })
}

// runJob has each contender do a job, in a process of its own: what another one left behind,
// garbage and goroutines, would be measured along with it.
func runJob(r *results, j job, only string, n int, progress string) {
	for _, k := range kinds {
		if !matches(only, k.name) || k.memoryOnly && j.names[0] != memoryJob || k.keyed && j.names[0] != keyedJob {
			continue
		}
		fmt.Fprintf(os.Stderr, "\r\033[K%s: %s", progress, k.name)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		cmd := exec.CommandContext(ctx, os.Args[0], "-child", j.names[0]+"|"+k.name, "-n", strconv.Itoa(n))
		cmd.Stderr = os.Stderr
		answer, err := cmd.Output()
		cancel()
		if err != nil {
			fmt.Fprintf(os.Stderr, "\n%s: %v\n", k.name, err)
			continue
		}
		for i, field := range strings.Fields(string(answer)) {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				log.Fatalf("timers: %s: answer %q", k.name, answer)
			}
			r.add(j.names[i], j.units[i], k.name, v)
		}
	}
}

// runChild does one job for one contender and prints the values.
func runChild(what string, n int) {
	name, contender, _ := strings.Cut(what, "|")
	for _, j := range jobs {
		for _, k := range kinds {
			if j.names[0] == name && k.name == contender {
				for _, v := range j.run(k, n) {
					fmt.Println(v)
				}
			}
		}
	}
}
