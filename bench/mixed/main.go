// Command mixed measures what goroutines that wait for sockets pay for sharing a processor with
// event loops: a server echoes on its loops, and for some requests calls a backend over TCP by
// loop.Offload. Variants differ in the number of loops and of Ps (GOMAXPROCS); they take turns,
// round after round, and the table shows medians with the least and the greatest in brackets.
// Beside each it says how late bare sleeping threads were at the same time, and of the slowest
// answers, how many came while one was: no server can be quicker than that.
//
//	go run ./mixed [-variants 2/2,1/2,2/3,net] [-rounds 3] [-for 10s] [-echoes 5000] [-calls 1000]
//
// A variant is LOOPS/PS; 0/0 is what Server and the runtime choose by themselves, and net is a
// server without loops, with a goroutine for each connection: what the machine itself makes of such
// a load.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/stalls"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("mixed: ")
	var (
		variants = flag.String("variants", "2/2,1/2,2/3,0/0,net", "LOOPS/PS or net, separated by commas")
		rounds   = flag.Int("rounds", 3, "rounds")
		length   = flag.Duration("for", 10*time.Second, "length of each run")
		echoes   = flag.Int("echoes", 5000, "echoes per second")
		calls    = flag.Int("calls", 1000, "offloaded calls per second")
		serve    = flag.String("serve", "", "be a server: backend, net, or a number of loops")
		backend  = flag.String("backend", "", "address of the backend, with -serve")
		stall    = flag.Bool("stalls", false, "only tell when this machine's cores stall, until the input ends")
	)
	flag.Parse()
	var err error
	switch *serve {
	case "":
		if *stall {
			stalls.Print()
			return
		}
		err = compare(strings.Split(*variants, ","), *rounds, load{*length, *echoes, *calls})
	case "backend":
		err = serveBackend()
	case "net":
		err = serveNet(*backend)
	default:
		err = serveLoops(*serve, *backend)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// A load is what the clients ask for.
type load struct {
	length        time.Duration
	echoes, calls int // per second
}

// A result is what one run took.
type result struct {
	cpu          time.Duration // of the server, per second
	echoes       []reply
	calls        []reply
	machine      []stalls.Stall
	loops, procs int
}

// A reply is when something was asked, in nanoseconds since 1970, and how long the answer took. The
// collector need not look into it.
type reply struct {
	asked int64
	took  time.Duration
}

func compare(variants []string, rounds int, ld load) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	backend := exec.Command(self, "-serve", "backend")
	addr, err := start(backend)
	if err != nil {
		return err
	}
	defer func() { _ = backend.Process.Kill(); _ = backend.Wait() }()
	results := make(map[string][]result)
	for round := range rounds {
		for _, v := range variants {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, v)
			r, err := run(self, v, addr, ld)
			if err != nil {
				return fmt.Errorf("%s: %w", v, err)
			}
			results[v] = append(results[v], r)
		}
	}
	fmt.Printf("| loops/Ps | CPU ms/s | echo p50 ms | p99 | max | call p50 ms | p99 | max |\n|---|---|---|---|---|---|---|---|\n")
	for _, v := range variants {
		rs := results[v]
		row := []string{fmt.Sprintf("%d/%d", rs[0].loops, rs[0].procs), span(rs, func(r result) float64 { return ms(r.cpu) })}
		for _, of := range []func(result) []reply{
			func(r result) []reply { return r.echoes }, func(r result) []reply { return r.calls },
		} {
			for _, q := range []float64{0.5, 0.99, 1} {
				row = append(row, span(rs, func(r result) float64 { return ms(quantile(of(r), q)) }))
			}
		}
		fmt.Printf("| %s |\n", strings.Join(row, " | "))
	}
	for _, v := range variants {
		for i, r := range results[v] {
			fmt.Printf("\n%d/%d, round %d: the machine: %s\n", r.loops, r.procs, i+1, stalls.Describe(r.machine))
			r.tellSlow("echoes", r.echoes)
			r.tellSlow("calls", r.calls)
		}
	}
	return nil
}

// tellSlow says what of the slow answers is the machine's.
func (r result) tellSlow(what string, answers []reply) {
	var n, stalled [3]int
	var longest time.Duration // of those that are not
	for _, a := range answers {
		late := a.took >= slow[0] && stalls.Overlap(r.machine, time.Unix(0, a.asked), time.Unix(0, a.asked).Add(a.took))
		for i, limit := range slow {
			if a.took < limit {
				continue
			}
			if n[i]++; late {
				stalled[i]++
			}
		}
		if !late {
			longest = max(longest, a.took)
		}
	}
	fmt.Printf("  %s:", what)
	for i, limit := range slow {
		fmt.Printf(" of %v and more %d, of which %d while a thread was late;", limit, n[i], stalled[i])
	}
	fmt.Printf(" the longest of the others %.2f ms, of %d\n", ms(longest), len(answers))
}

// slow are what is asked for: p99, and twice more up to the longest.
var slow = [3]time.Duration{1500 * time.Microsecond, 3 * time.Millisecond, 5 * time.Millisecond}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile expects sorted answers.
func quantile(s []reply, q float64) time.Duration {
	return s[min(len(s)-1, int(q*float64(len(s))))].took
}

// span formats the median of a figure, with the least and the greatest.
func span(rs []result, of func(result) float64) string {
	var s []float64
	for _, r := range rs {
		s = append(s, of(r))
	}
	slices.Sort(s)
	return fmt.Sprintf("%.3g (%.3g–%.3g)", s[len(s)/2], s[0], s[len(s)-1])
}

// start starts a process and returns the first line that it prints.
func start(cmd *exec.Cmd) (string, error) {
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}

func run(self, variant, backend string, ld load) (r result, err error) {
	loops, procs, ok := strings.Cut(variant, "/")
	if variant == "net" {
		procs, ok = "0", true
	}
	if !ok {
		return r, errors.New("a variant is LOOPS/PS")
	}
	server := exec.Command(self, "-serve", loops, "-backend", backend)
	server.Env = os.Environ()
	if procs != "0" {
		server.Env = append(server.Env, "GOMAXPROCS="+procs)
	}
	line, err := start(server)
	if err != nil {
		return r, err
	}
	defer func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		err = cmp.Or(err, server.Wait())
		r.cpu = time.Duration(float64(server.ProcessState.UserTime()+server.ProcessState.SystemTime()) / ld.length.Seconds())
	}()
	var addr string
	if _, err := fmt.Sscan(line, &addr, &r.loops, &r.procs); err != nil {
		return r, err
	}
	watch, err := stalls.Watch("-stalls")
	if err != nil {
		return r, err
	}
	const echoConns, callConns = 50, 20
	var wg sync.WaitGroup
	errs := make(chan error, 1)
	r.echoes = drive(&wg, errs, addr, "e", echoConns, ld.echoes, ld.length)
	r.calls = drive(&wg, errs, addr, "c", callConns, ld.calls, ld.length)
	wg.Wait()
	r.machine = watch.Stop()
	select {
	case err = <-errs:
	default:
	}
	byTime := func(a, b reply) int { return cmp.Compare(a.took, b.took) }
	slices.SortFunc(r.echoes, byTime)
	slices.SortFunc(r.calls, byTime)
	return r, err
}
