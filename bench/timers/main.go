//go:build linux

// Command timers measures loopwheel's timing wheel and Scheduler beside what else there is: heaps,
// time.AfterFunc and other timing wheels. It fills the tables Timers of docs/performance.md:
//
//	go run ./timers              # the wheel beside heaps, three numbers of timers: ten minutes
//	go run ./timers -libraries   # the Scheduler beside what has a clock of its own: five minutes
//	go run ./timers -run reset   # jobs with "reset" in their name
//	go run ./timers -quick
//
// All contenders take turns at each job, each in a process of its own, several rounds of it. Times
// are CPU times, so that other programs count as little as can be.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// quick shortens the jobs.
var quick = flag.Bool("quick", false, "one short round with 100,000 timers")

func main() {
	measure.Begin("timers")
	rounds := flag.Int("rounds", 5, "how often each contender does each job")
	sizes := flag.String("n", "10000,100000,1000000", "`numbers` of timers that are pending, by commas; with -libraries the largest")
	libraries := flag.Bool("libraries", false, "compare what has a clock of its own")
	run := flag.String("run", "", "only jobs whose name contains this")
	only := flag.String("only", "", "only contenders whose name contains this")
	child := flag.String("child", "", "used by the program itself: do one job, for one contender")
	docs := flag.String("docs", "", measure.Docs)
	flag.Parse()
	if *child != "" {
		n, _ := strconv.Atoi(*sizes)
		runChild(*child, n)
		return
	}
	if *quick {
		*rounds, *sizes = 1, "100000"
	}
	numbers := strings.Split(*sizes, ",")
	name, r := "timers", &measure.Results{Base: "4-ary heap"}
	if *libraries {
		name, r.Base, numbers = "timer libraries", "time.AfterFunc", numbers[len(numbers)-1:]
	}
	for i, n := range numbers {
		if number, err := strconv.Atoi(n); err != nil || number < 1000 {
			log.Fatalf("-n: %q is no number of at least 1000", n)
		}
		for round := range *rounds {
			for _, j := range jobs {
				if !strings.Contains(j.names[0], *run) || j.once && round > 1 || j.fixed && i > 0 {
					continue
				}
				for _, k := range kinds {
					if strings.Contains(k.name, *only) && k.library == *libraries {
						measure.Progress("%s timers, round %d of %d, %s: %s", n, round+1, *rounds, j.names[0], k.name)
						runJob(r, j, k, n)
					}
				}
			}
		}
	}
	measure.Progress("")
	measure.Check(r.Show(name, *docs))
}

// runJob has a contender do a job in a process of its own: what another one left, garbage and
// goroutines, would be measured along with it.
func runJob(r *measure.Results, j job, k kind, n string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-child", j.names[0]+"|"+k.name, "-n", n, fmt.Sprintf("-quick=%v", *quick))
	cmd.Stderr = os.Stderr
	answer, err := cmd.Output()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\n%s, %s: %v\n", k.name, j.names[0], err)
		return
	}
	for i, field := range strings.Fields(string(answer)) {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil {
			log.Fatalf("%s: answer %q", k.name, answer)
		}
		label := j.names[i]
		if !j.fixed {
			label += ", " + n + " pending"
		}
		r.Add(label, k.name, v)
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
