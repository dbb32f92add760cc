// Command kv runs redis-benchmark against examples/kv and redis-server in turns, and shows requests
// per second and CPU time per request as ratios of the two: medians of the rounds, least and most.
//
//	go build -o /tmp/kv ../examples/kv && go run ./kv -kv /tmp/kv
//
// It needs redis-server and redis-benchmark (apt-get install redis-server redis-tools).
package main

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A server is one of the two that are compared.
type server struct {
	name string
	port string
	cmd  *exec.Cmd
}

// A result is what one run gave.
type result struct {
	rate float64 // requests per second
	cpu  float64 // microseconds per request
}

func main() {
	kv := flag.String("kv", "", "the `binary` of examples/kv")
	rounds := flag.Int("rounds", 5, "how many `times` each is measured")
	requests := flag.Int("n", 100_000, "requests of a run without pipelining; with, it is eight times that")
	tests := flag.String("t", "set,get,incr,lpush", "what redis-benchmark runs")
	pipelines := flag.String("P", "1,16", "pipelining")
	flag.Parse()
	if *kv == "" {
		log.Fatal("kv: -kv is missing: the binary of examples/kv")
	}
	if err := compare(*kv, *rounds, *requests, strings.Split(*tests, ","), strings.Split(*pipelines, ",")); err != nil {
		log.Fatal("kv: ", err)
	}
}

func compare(kv string, rounds, requests int, tests, pipelines []string) error {
	dir, err := os.MkdirTemp("", "kvbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	a := &server{name: "kv", port: freePort()}
	b := &server{name: "redis-server", port: freePort()}
	if err := a.start(dir, kv, "-addr", "tcp://127.0.0.1:"+a.port, "-log", "error"); err != nil {
		return err
	}
	defer a.stop()
	if err := b.start(dir, "redis-server", "--port", b.port, "--save", "", "--appendonly", "no"); err != nil {
		return err
	}
	defer b.stop()
	fmt.Println("test      P   kv req/s  redis req/s  ratio (least, most)   kv us/req  redis us/req  ratio (least, most)")
	for _, p := range pipelines {
		n := requests
		if p != "1" {
			n *= 8
		}
		for _, test := range tests {
			if err := row(a, b, test, p, n, rounds); err != nil {
				return err
			}
		}
	}
	return nil
}

// row measures one test, in turns, and prints it.
func row(a, b *server, test, pipeline string, n, rounds int) error {
	var rates, cpus [3][]float64 // a, b, a/b
	for round := range rounds {
		order := []*server{a, b}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		var got [2]result
		for _, s := range order {
			r, err := s.measure(test, pipeline, n)
			if err != nil {
				return err
			}
			got[slices.Index([]*server{a, b}, s)] = r
		}
		for i, v := range []float64{got[0].rate, got[1].rate, got[0].rate / got[1].rate} {
			rates[i] = append(rates[i], v)
		}
		for i, v := range []float64{got[0].cpu, got[1].cpu, got[0].cpu / got[1].cpu} {
			cpus[i] = append(cpus[i], v)
		}
	}
	fmt.Printf("%-8s %2s  %9.0f  %11.0f  %5.2f (%.2f, %.2f)     %8.2f  %12.2f  %5.2f (%.2f, %.2f)\n", test, pipeline,
		median(rates[0]), median(rates[1]), median(rates[2]), slices.Min(rates[2]), slices.Max(rates[2]),
		median(cpus[0]), median(cpus[1]), median(cpus[2]), slices.Min(cpus[2]), slices.Max(cpus[2]))
	return nil
}

// measure runs redis-benchmark once.
func (s *server) measure(test, pipeline string, n int) (result, error) {
	if err := exec.Command("redis-cli", "-p", s.port, "FLUSHALL").Run(); err != nil {
		return result{}, err
	}
	before, err := s.cpuTime()
	if err != nil {
		return result{}, err
	}
	out, err := exec.Command("redis-benchmark", "-p", s.port, "-t", test, "-c", "50", "-P", pipeline, "-n", strconv.Itoa(n), "--csv").Output()
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
	return result{rate, float64((after - before).Microseconds()) / float64(n)}, err
}

// cpuTime returns what the process has used until now.
func (s *server) cpuTime() (time.Duration, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.cmd.Process.Pid), "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("%s: %q", s.name, stat)
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil // ticks of 1/100 s
}

func (s *server) start(dir, path string, args ...string) error {
	s.cmd = exec.Command(path, args...)
	s.cmd.Dir = dir
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for range 300 {
		if c, err := net.Dial("tcp", "127.0.0.1:"+s.port); err == nil {
			return c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return fmt.Errorf("%s does not listen", s.name)
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// freePort returns a port that nobody listens on.
func freePort() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	return port
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}
