//go:build linux

// Command million opens as many real TCP connections over loopback as are asked for, and tells what
// they cost: memory of the server and of the kernel, CPU of a heartbeat, how late silent peers are
// evicted, and how long talkers beside them wait.
//
//	sudo go run ./million -conns 10000,100000,1000000 -servers loopwheel,loopwheel-epoll,gnet-scan,net
//
// Each connection has an idle timeout of one and a half heartbeats, is pinged after a heartbeat of
// silence, and answers. The clients use addresses of 127.0.0.0/8, as one address has 28,000 ports.
// As root the command raises the limits that it needs, and puts them back. A line on standard error
// tells what is going on.
package main

import (
	"encoding/json"
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

	"github.com/loopwheel/loopwheel/bench/internal/child"
)

const (
	silent  = 10_000 // fall silent at once, or half of those of one process
	talkers = 1_000  // say something each second
)

type options struct {
	heartbeat, window time.Duration
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
	flag.DurationVar(&o.window, "for", time.Minute, "how long each is measured")
	flag.Parse()
	switch {
	case *serve != "":
		check(runServer(*serve, o.heartbeat))
		return
	case *client != "":
		n, err := strconv.Atoi(*conns)
		check(err)
		check(runClients(*client, *first, n))
		return
	}
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

// A reading is what a server says of itself.
type reading struct {
	Resident int           // bytes
	CPU      time.Duration // user's and system's
	Conns    int
	Evicted  int
	Late     []time.Duration // of evictions: the median, the 99th percentile, the worst
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
	fmt.Println("| server | connections | opened in | user memory | kernel, both ends | CPU per connection and minute | talkers: median | p99 | evicted | late: p99 | worst | ended in |")
	fmt.Println("|" + strings.Repeat("---|", 12))
	for _, n := range numbers {
		for _, server := range servers {
			r, err := o.measure(server, n)
			if err != nil {
				return fmt.Errorf("%s, %d connections: %w", server, n, err)
			}
			fmt.Printf("\r\x1b[K| %s | %d | %.1f s | %d B | %d B | %.2f µs | %v | %v | %d | %v | %v | %.1f s |\n", server, n,
				r.opening.Seconds(), r.user, r.kernel, float64(r.cpu.Nanoseconds())/1e3, short(r.median), short(r.p99),
				r.evicted, short(r.late), short(r.lateMost), r.closing.Seconds())
		}
	}
	return nil
}

func short(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...) }

// A pair is a server and its clients. More than one is needed where the system lets a process have
// less descriptors than there are connections.
type pair struct{ server, clients *child.Process }

type pairs []pair

func (ps pairs) end() {
	for _, p := range ps {
		if p.clients != nil {
			p.clients.End()
		}
		p.server.End()
	}
}

// read sums up what the servers say. Only the last one evicts.
func (ps pairs) read(what string) (sum reading, err error) {
	for _, p := range ps {
		r, err := read(p.server, what)
		if err != nil {
			return r, err
		}
		r.Resident, r.CPU, r.Conns = r.Resident+sum.Resident, r.CPU+sum.CPU, r.Conns+sum.Conns
		sum = r
	}
	return sum, nil
}

func (o *options) measure(name string, n int) (r row, err error) {
	var ps pairs
	defer func() { ps.end() }()
	each := descriptors() - 1000
	for range (n + each - 1) / each {
		server, err := child.Spawn("-serve", name, "-heartbeat", o.heartbeat.String())
		if err != nil {
			return r, err
		}
		ps = append(ps, pair{server: server})
	}
	addrs := make([]string, len(ps))
	for i, p := range ps {
		if addrs[i], err = p.server.Line(); err != nil {
			return r, err
		}
	}
	empty, err := ps.read("gc")
	if err != nil {
		return r, err
	}
	kernel, begun := kernelMemory(), time.Now()
	for i := range ps {
		first, last := i*n/len(ps), (i+1)*n/len(ps)
		c, err := child.Spawn("-client", addrs[i], "-first", strconv.Itoa(first), "-conns", strconv.Itoa(last-first))
		if err != nil {
			return r, err
		}
		ps[i].clients = c
		if err := opened(name, first, c); err != nil {
			return r, err
		}
	}
	r.opening = time.Since(begun)
	return r, o.watch(&r, name, n, ps, empty, kernel)
}

// opened waits until a process of clients has its connections.
func opened(name string, first int, c *child.Process) error {
	for {
		line, err := c.Line()
		if err != nil {
			return errors.New("the clients have ended")
		}
		if line == "open" {
			return nil
		}
		progress("%s: %s of the connections from %d on", name, line, first)
	}
}

// watch measures when all are connected: heartbeats and talkers for a while, then evictions.
func (o *options) watch(r *row, name string, n int, ps pairs, empty reading, kernel int) error {
	progress("%s: %d connections, heartbeats", name, n)
	time.Sleep(o.heartbeat) // each was pinged once
	before, err := ps.read("gc")
	if err != nil {
		return err
	}
	if before.Conns != n {
		return fmt.Errorf("%d are open", before.Conns)
	}
	r.user, r.kernel = (before.Resident-empty.Resident)/n, (kernelMemory()-kernel)/n
	if before, err = ps.read(""); err != nil {
		return err
	}
	time.Sleep(o.window)
	after, err := ps.read("")
	if err != nil {
		return err
	}
	r.cpu = time.Duration(float64(after.CPU-before.CPU) / float64(n) * float64(time.Minute) / float64(o.window))
	progress("%s: %d connections, %d of them talk", name, n, talkers)
	clients := ps[len(ps)-1].clients
	answer, err := clients.Ask("talk")
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(answer, &r.median, &r.p99); err != nil {
		return err
	}
	progress("%s: %d connections, some of which fall silent", name, n)
	if _, err := clients.Ask("silence"); err != nil {
		return err
	}
	time.Sleep(o.heartbeat*3/2 + 5*time.Second)
	if after, err = ps.read(""); err != nil {
		return err
	}
	r.evicted, r.late, r.lateMost = after.Evicted, after.Late[1], after.Late[2]
	progress("%s: the end of %d connections", name, n)
	begun := time.Now()
	_, err = ps.read("end")
	r.closing = time.Since(begun)
	return err
}

// read asks the server for a reading, after what it is told to do.
func read(server *child.Process, what string) (r reading, err error) {
	s, err := server.Ask(what)
	if err != nil {
		return r, fmt.Errorf("the server has ended: %w", err)
	}
	return r, json.Unmarshal([]byte(s), &r)
}
