package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"time"
)

// rates runs redis-benchmark against both.
type rates struct{ rounds, requests, threads int }

// A result is what one run gave. busy is CPU time as a part of the time that passed:
// redis-benchmark has one thread, so that it is the limit, and not the server, when its part comes
// near 1.
type result struct {
	rate       float64 // requests per second
	cpu        float64 // microseconds of the server per request
	busy       float64 // the server
	clientBusy float64 // redis-benchmark
}

func (r rates) compare(a, b *server, tests, pipelines []string) error {
	fmt.Println("                requests/s                                  server's us/request                  busy: server, client")
	fmt.Println("test      P        kv     redis  ratio (least, most)      kv   redis  ratio (least, most)          kv        redis")
	for _, p := range pipelines {
		n := r.requests
		if p != "1" {
			n *= 8
		}
		for _, test := range tests {
			if err := r.row(a, b, test, p, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// row measures one test, in turns, and prints it: medians.
func (r rates) row(a, b *server, test, pipeline string, n int) error {
	of := func(of []result, f func(r result) float64) float64 {
		var v []float64
		for _, r := range of {
			v = append(v, f(r))
		}
		return median(v)
	}
	rate, cpu := func(r result) float64 { return r.rate }, func(r result) float64 { return r.cpu }
	busy, client := func(r result) float64 { return r.busy }, func(r result) float64 { return r.clientBusy }
	var got [2][]result
	var rateRatios, cpuRatios []float64
	for round := range r.rounds {
		order := []*server{a, b}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			one, err := s.measure(test, pipeline, n, r.threads)
			if err != nil {
				return err
			}
			at := slices.Index([]*server{a, b}, s)
			got[at] = append(got[at], one)
		}
		rateRatios = append(rateRatios, got[0][round].rate/got[1][round].rate)
		cpuRatios = append(cpuRatios, got[0][round].cpu/got[1][round].cpu)
	}
	fmt.Printf("%-8s %2s %9.0f %9.0f  %5.2f (%.2f, %.2f)     %6.2f  %6.2f  %5.2f (%.2f, %.2f)    %.2f, %.2f   %.2f, %.2f\n", test, pipeline,
		of(got[0], rate), of(got[1], rate), median(rateRatios), slices.Min(rateRatios), slices.Max(rateRatios),
		of(got[0], cpu), of(got[1], cpu), median(cpuRatios), slices.Min(cpuRatios), slices.Max(cpuRatios),
		of(got[0], busy), of(got[0], client), of(got[1], busy), of(got[1], client))
	return nil
}

// measure runs redis-benchmark once.
func (s *server) measure(test, pipeline string, n, threads int) (result, error) {
	if err := exec.Command("redis-cli", "-p", s.port, "FLUSHALL").Run(); err != nil {
		return result{}, err
	}
	args := []string{"-p", s.port, "-t", test, "-c", "50", "-P", pipeline, "-n", strconv.Itoa(n), "--csv"}
	if threads > 1 {
		args = append(args, "--threads", strconv.Itoa(threads))
	}
	cmd := exec.Command("redis-benchmark", args...)
	before, err := s.cpuTime()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	out, err := cmd.Output()
	took := time.Since(began)
	if err != nil {
		return result{}, fmt.Errorf("redis-benchmark on %s: %w", s.name, err)
	}
	after, err := s.cpuTime()
	if err != nil {
		return result{}, err
	}
	rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
	if err != nil || len(rows) < 2 {
		return result{}, fmt.Errorf("redis-benchmark says %q", out)
	}
	rate, err := strconv.ParseFloat(rows[len(rows)-1][1], 64)
	used := after - before
	client := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return result{rate: rate, cpu: float64(used.Microseconds()) / float64(n),
		busy: used.Seconds() / took.Seconds(), clientBusy: client.Seconds() / took.Seconds()}, err
}
