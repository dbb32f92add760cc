//go:build linux

// Command million opens as many real TCP connections over loopback as are asked for, and tells what
// they cost: memory of the server and of the kernel, CPU of a heartbeat, how late silent peers are
// evicted, and how long talkers beside them wait. It fills the table of docs/scaling.md that is
// about sockets:
//
//	sudo go run ./million -conns 10000,100000,1000000    # four minutes for each number and server
//	go run ./million -quick
//
// Each connection has an idle timeout of one and a half heartbeats, is pinged after a heartbeat of
// silence, and answers. The clients use addresses of 127.0.0.0/8, as one address has 28,000 ports.
// As root the command raises the limits that it needs, and puts them back. Where a process may not
// have enough files open, several pairs of a server and its clients share the connections.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

const (
	silent  = 10_000 // fall silent at once, or half of those of one process
	talkers = 1_000  // say something each second
)

type options struct {
	heartbeat, window, talk time.Duration
	docs                    string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("million: ")
	var o options
	serve := flag.String("serve", "", "used by the program itself: be this `server`")
	client := flag.String("client", "", "used by the program itself: be the clients of this `address`")
	first := flag.Int("first", 0, "used by the program itself: the number of the first connection")
	conns := flag.String("conns", "10000,100000", "`numbers` of connections, by commas")
	names := flag.String("servers", "loopwheel,loopwheel-epoll,gnet-scan,net", "`servers` to measure, by commas")
	flag.DurationVar(&o.heartbeat, "heartbeat", time.Minute, "ping after so long a silence")
	flag.DurationVar(&o.window, "for", time.Minute, "how long heartbeats are measured")
	flag.DurationVar(&o.talk, "talk", 20*time.Second, "how long talkers are measured")
	flag.StringVar(&o.docs, "docs", "", measure.Docs)
	quick := flag.Bool("quick", false, "4,000 connections, and a heartbeat of two seconds")
	flag.Parse()
	if *quick {
		*conns, o.heartbeat, o.window, o.talk = "4000", 2*time.Second, 2*time.Second, 2*time.Second
	}
	switch {
	case *serve != "":
		check(runServer(*serve, o.heartbeat))
	case *client != "":
		n, err := strconv.Atoi(*conns)
		check(err)
		check(runClients(*client, *first, n, o.talk))
	default:
		numbers := parse(*conns)
		restore, err := raiseLimits(slices.Max(numbers))
		check(err)
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
		go func() {
			<-stop
			restore()
			os.Exit(1)
		}()
		err = o.measureAll(numbers, strings.Split(*names, ","))
		restore()
		check(err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
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

// A row is what one measurement gave.
type row struct {
	opening        time.Duration
	user, kernel   int // bytes for each connection; the kernel's are of both ends
	cpu            time.Duration
	median, p99    time.Duration // of talkers
	evicted        int
	late, lateMost time.Duration
	closing        time.Duration
}

func (o *options) measureAll(numbers []int, servers []string) error {
	t := measure.Table{{"server", "connections", "opened in", "user memory", "kernel, both ends", "CPU per connection and minute",
		"talkers: median", "p99", "evicted", "late: p99", "worst", "ended in"}}
	for _, n := range numbers {
		for _, server := range servers {
			r, err := o.measure(server, n)
			if err != nil {
				_ = t.Show("million", "")
				return fmt.Errorf("%s, %d connections: %w", server, n, err)
			}
			t = append(t, []string{server, strconv.Itoa(n), measure.Short(r.opening).String(), fmt.Sprintf("%d B", r.user),
				fmt.Sprintf("%d B", r.kernel), measure.Short(r.cpu).String(), measure.Short(r.median).String(), measure.Short(r.p99).String(),
				strconv.Itoa(r.evicted), measure.Short(r.late).String(), measure.Short(r.lateMost).String(), measure.Short(r.closing).String()})
			measure.Progress("%s\n", strings.Join(t[len(t)-1], " | "))
		}
	}
	return t.Show("million", o.docs)
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

// A reading is what servers say of themselves, and what they have used.
type reading struct {
	resident       int // bytes
	cpu            time.Duration
	conns, evicted int
	late, lateMost time.Duration // the 99th percentile, and the worst
}

// read sums up what the servers say, after what they are told to do. Only the last one evicts.
func (ps pairs) read(what string) (sum reading, err error) {
	for _, p := range ps {
		answer, err := p.server.Ask(what)
		if err != nil {
			return sum, err
		}
		var conns int
		if _, err := fmt.Sscan(answer, &conns, &sum.evicted, &sum.late, &sum.lateMost); err != nil {
			return sum, fmt.Errorf("%q: %w", answer, err)
		}
		sum.conns += conns
		sum.resident += p.server.Resident()
		sum.cpu += p.server.CPU()
	}
	return sum, nil
}

func (o *options) measure(name string, n int) (r row, err error) {
	var ps pairs
	defer func() { ps.end() }()
	each := descriptors() - 1000
	for range (n + each - 1) / each {
		server, err := measure.Self(name, "-serve", name, "-heartbeat", o.heartbeat.String())
		if err != nil {
			return r, err
		}
		ps = append(ps, pair{server: server})
	}
	empty, err := ps.read("gc")
	if err != nil {
		return r, err
	}
	kernel, begun := kernelMemory(), time.Now()
	for i := range ps {
		first, last := i*n/len(ps), (i+1)*n/len(ps)
		c, err := measure.Self("clients", "-client", ps[i].server.Addr, "-first", strconv.Itoa(first), "-conns", strconv.Itoa(last-first),
			"-talk", o.talk.String())
		if err != nil {
			return r, err
		}
		ps[i].clients = c
		for line := c.Addr; line != "open"; {
			measure.Progress("%s: %s of the connections from %d on", name, line, first)
			if line, err = c.Line(); err != nil {
				return r, err
			}
		}
	}
	r.opening = time.Since(begun)
	return r, o.watch(&r, name, n, ps, empty, kernel)
}

// watch measures when all are connected: heartbeats and talkers for a while, then evictions.
func (o *options) watch(r *row, name string, n int, ps pairs, empty reading, kernel int) error {
	measure.Progress("%s: %d connections, heartbeats", name, n)
	time.Sleep(o.heartbeat) // each was pinged once
	before, err := ps.read("gc")
	if err != nil {
		return err
	}
	if before.conns != n {
		return fmt.Errorf("%d are left: the machine was too busy for a heartbeat of %v", before.conns, o.heartbeat)
	}
	r.user, r.kernel = (before.resident-empty.resident)/n, (kernelMemory()-kernel)/n
	if before, err = ps.read(""); err != nil {
		return err
	}
	time.Sleep(o.window)
	after, err := ps.read("")
	if err != nil {
		return err
	}
	r.cpu = time.Duration(float64(after.cpu-before.cpu) / float64(n) * float64(time.Minute) / float64(o.window))
	measure.Progress("%s: %d connections, %d of them talk", name, n, talkers)
	clients := ps[len(ps)-1].clients
	answer, err := clients.Ask("talk")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(answer, &r.median, &r.p99); err != nil {
		return err
	}
	measure.Progress("%s: %d connections, some of which fall silent", name, n)
	if _, err := clients.Ask("silence"); err != nil {
		return err
	}
	time.Sleep(o.heartbeat*3/2 + min(5*time.Second, o.heartbeat))
	if after, err = ps.read(""); err != nil {
		return err
	}
	if r.evicted, r.late, r.lateMost = after.evicted, after.late, after.lateMost; r.evicted == 0 {
		return errors.New("nobody was evicted")
	}
	measure.Progress("%s: the end of %d connections", name, n)
	begun := time.Now()
	_, err = ps.read("end")
	r.closing = time.Since(begun)
	return err
}
