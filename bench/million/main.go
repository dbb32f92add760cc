//go:build linux

// Command million opens as many real TCP connections over loopback as are asked for, and tells what
// they cost: memory of the server and of the kernel, CPU of a heartbeat, how late silent peers are
// evicted, and how long talkers beside them wait. It fills the table of docs/scaling.md that is
// about sockets:
//
//	sudo go run ./million -rounds 3     # two minutes and a half for each round, number and server
//	sudo go run ./million -servers loopwheel -conns 1000000 -heartbeat 2m
//	go run ./million -quick
//
// Each connection has an idle timeout of one and a half heartbeats, is pinged after a silence of a
// heartbeat or up to a quarter more, and answers. The clients use addresses of 127.0.0.0/8, as one
// address has 28,000 ports. As root the command raises the limits that it needs, and puts them
// back. Where a process may not have enough files open, several pairs of a server and its clients
// share the connections. Talkers and silent peers are all in the last pair.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

const (
	silent  = 10_000 // fall silent at once, or half of those of one process
	talkers = 1_000  // say something each second

	settle    = 2 * time.Second // until the kernel has freed the sockets of the measurement before
	bytesEach = 15_000          // of a connection: the kernel's of both ends, and the processes'
	reserve   = 1 << 30         // of memory, for others
)

type options struct {
	heartbeat, window, talk time.Duration
	rounds                  int
}

func main() {
	measure.Begin("million")
	var o options
	serve := flag.String("serve", "", "used by the program itself: be this `server`")
	client := flag.String("client", "", "used by the program itself: be the clients of this `address`")
	first := flag.Int("first", 0, "used by the program itself: the number of the first connection")
	conns := flag.String("conns", "10000,100000", "`numbers` of connections, by commas")
	names := flag.String("servers", "loopwheel,loopwheel-epoll,gnet-list,gnet-timingwheel,net", "`servers` to measure, by commas")
	flag.DurationVar(&o.heartbeat, "heartbeat", 30*time.Second, "ping after so long a silence")
	flag.DurationVar(&o.window, "for", 30*time.Second, "how long heartbeats are measured")
	flag.DurationVar(&o.talk, "talk", 10*time.Second, "how long talkers are measured")
	docs := flag.String("docs", "", measure.Docs)
	flag.IntVar(&o.rounds, "rounds", 1, "how often each is measured")
	quick := flag.Bool("quick", false, "4,000 connections, and a heartbeat of two seconds")
	flag.Parse()
	if *quick {
		*conns, o.heartbeat, o.window, o.talk = "4000", 2*time.Second, 2*time.Second, 2*time.Second
	}
	switch {
	case *serve != "":
		measure.Check(runServer(*serve, o.heartbeat))
	case *client != "":
		n, err := strconv.Atoi(*conns)
		measure.Check(err)
		measure.Check(runClients(*client, *first, n, o.talk))
	default:
		numbers := parse(*conns)
		restore, err := raiseLimits(slices.Max(numbers))
		measure.Check(err)
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
		go func() {
			<-stop
			restore()
			os.Exit(1)
		}()
		results := &measure.Results{}
		err = o.measureAll(numbers, strings.Split(*names, ","), results)
		restore()
		measure.Check(err)
		measure.Check(results.Show("million", *docs))
	}
}

func parse(list string) (numbers []int) {
	for s := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 2*talkers {
			log.Fatalf("-conns: %q is no number of at least %d", s, 2*talkers)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// measureAll measures the servers in turns.
func (o *options) measureAll(numbers []int, servers []string, out *measure.Results) error {
	for range o.rounds {
		for _, n := range numbers {
			for _, server := range servers {
				if err := o.measure(server, n, out); err != nil {
					return fmt.Errorf("%s, %d connections: %w", server, n, err)
				}
			}
		}
	}
	measure.Progress("")
	return nil
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// A pair is a server and its clients.
type pair struct{ server, clients *measure.Process }

type pairs []pair

func (ps pairs) end() {
	for _, p := range ps {
		if p.clients != nil {
			p.clients.End()
		}
		p.server.End()
	}
}

// start starts this program once more. Those that no times are taken of stand back for the others.
func start(name string, first bool, args ...string) (*measure.Process, error) {
	if first {
		return measure.Self(name, 0, args...)
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return measure.Start(name, exec.Command("nice", append([]string{"-n", "10", exe}, args...)...))
}

// A reading is what servers say of themselves, and what they have used.
type reading struct {
	resident   int // bytes
	cpu        time.Duration
	conns      int
	heartbeats int // answered
	evicted    int
	late       time.Duration // the 99th percentile
}

// read sums up what the servers report after a command. Only the last one evicts.
func (ps pairs) read(what string) (sum reading, err error) {
	for _, p := range ps {
		answer, err := p.server.Ask(what)
		if err != nil {
			return sum, err
		}
		var conns, heartbeats int
		if _, err := fmt.Sscan(answer, &conns, &heartbeats, &sum.evicted, &sum.late); err != nil {
			return sum, fmt.Errorf("%q: %w", answer, err)
		}
		sum.conns += conns
		sum.heartbeats += heartbeats
		sum.resident += anonymous(p.server.Pid())
		sum.cpu += p.server.CPU()
	}
	return sum, nil
}

// measure adds what one server costs with n connections to out.
func (o *options) measure(name string, n int, out *measure.Results) error {
	if need, free := n*bytesEach+reserve, memInfo("MemAvailable:"); need > free {
		return fmt.Errorf("they would take some %d MB of memory, and %d MB are free", need>>20, free>>20)
	}
	var ps pairs
	defer func() { ps.end() }()
	each := descriptors() - 1000
	number := (n + each - 1) / each
	for i := range number {
		server, err := start(name, i == number-1, "-serve", name, "-heartbeat", o.heartbeat.String())
		if err != nil {
			return err
		}
		ps = append(ps, pair{server: server})
	}
	label := name + ", " + thousands(n)
	time.Sleep(settle)
	empty, err := ps.read("gc")
	if err != nil {
		return err
	}
	kernel := kernelMemory()
	for i := range ps {
		first, last := i*n/len(ps), (i+1)*n/len(ps)
		c, err := start("clients", i == len(ps)-1, "-client", ps[i].server.Addr, "-first", strconv.Itoa(first), "-conns", strconv.Itoa(last-first),
			"-talk", o.talk.String())
		if err != nil {
			return err
		}
		ps[i].clients = c
		for line := c.Addr; line != "open"; {
			progress(label, "opening: of %d to %d %s", first, last-1, line)
			if line, err = c.Line(); err != nil {
				return err
			}
		}
	}
	add := func(cost string, v float64) { out.Add(label, cost, v) }
	add("processes", float64(len(ps)))
	return o.watch(label, n, ps, empty, kernel, add)
}

// progress tells what goes on, with the kernel's memory so far.
func progress(label, format string, args ...any) {
	measure.Progress("%s %s: %s; kernel %d MB, free %d MB", time.Now().Format("15:04:05"), label,
		fmt.Sprintf(format, args...), kernelMemory()>>20, memInfo("MemAvailable:")>>20)
}

// watch measures when all are connected: heartbeats and talkers for a while, then evictions.
func (o *options) watch(label string, n int, ps pairs, empty reading, kernel int, add func(cost string, v float64)) error {
	progress(label, "heartbeats")
	time.Sleep(o.heartbeat * 5 / 4) // each was pinged once
	before, err := ps.read("gc")
	if err != nil {
		return err
	}
	if before.conns != n {
		return fmt.Errorf("%d are left: the machine was too busy for a heartbeat of %v", before.conns, o.heartbeat)
	}
	add("user memory, B", float64((before.resident-empty.resident)/n))
	add("kernel, both ends, B", float64((kernelMemory()-kernel)/n))
	if before, err = ps.read(""); err != nil {
		return err
	}
	time.Sleep(o.window)
	after, err := ps.read("")
	if err != nil {
		return err
	}
	heartbeats := after.heartbeats - before.heartbeats
	add("CPU of a heartbeat, µs", (after.cpu-before.cpu).Seconds()*1e6/float64(max(1, heartbeats)))
	progress(label, "talkers, after %d heartbeats", heartbeats)
	clients := ps[len(ps)-1].clients
	answer, err := clients.Ask("talk")
	if err != nil {
		return err
	}
	var talkers time.Duration
	if _, err := fmt.Sscan(answer, &talkers); err != nil {
		return err
	}
	progress(label, "silence")
	if _, err := clients.Ask("silence"); err != nil {
		return err
	}
	sleeper := sleep(o.heartbeat*3/2 + min(5*time.Second, o.heartbeat))
	if after, err = ps.read(""); err != nil {
		return err
	}
	if after.evicted == 0 {
		return errors.New("nobody was evicted")
	}
	add("evictions late p99, ms", after.late.Seconds()*1e3)
	add("active p99, ms", talkers.Seconds()*1e3)
	add("sleeper late p99, ms", sleeper.Seconds()*1e3)
	return nil
}

// sleep sleeps for d, a millisecond at a time, and returns how late it was run after each: what the
// machine itself adds to a server's lateness. It is the 99th percentile.
func sleep(d time.Duration) time.Duration {
	var late []time.Duration
	for begun := time.Now(); time.Since(begun) < d; {
		from := time.Now()
		nap := unix.NsecToTimespec(int64(time.Millisecond))
		_ = unix.Nanosleep(&nap, nil)
		late = append(late, time.Since(from)-time.Millisecond)
	}
	return measure.Quantile(late, 0.99)
}
