// Command scale measures how cost grows with connections on sockets, as far as the machine allows:
// a server on one loop, whose clients are pinged after some seconds of silence, and of which one in
// a hundred says 64 bytes a second. Beyond that go on in memory: see package loop/scaletest.
//
//	go run ./scale -conns 1000,5000,18000
//
// The server is a process of its own, and so are its clients. What a process may open is limited by
// ulimit -n: both need one descriptor for each connection.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/child"
)

// options are what the flags say.
type options struct {
	conns     []int
	heartbeat time.Duration
	window    time.Duration
	rounds    int
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("scale: ")
	var o options
	serve := flag.Bool("serve", false, "used by the program itself: be the server")
	client := flag.String("client", "", "used by the program itself: be the clients of this address")
	conns := flag.String("conns", "1000,5000,18000", "numbers of connections, by commas")
	flag.DurationVar(&o.heartbeat, "heartbeat", 5*time.Second, "ping after so long a silence")
	flag.DurationVar(&o.window, "for", 10*time.Second, "how long each number is measured")
	flag.IntVar(&o.rounds, "rounds", 1, "how often each is measured")
	flag.Parse()
	for s := range strings.SplitSeq(*conns, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 100 {
			log.Fatalf("-conns: %q is no number of at least 100", s)
		}
		o.conns = append(o.conns, n)
	}
	var err error
	switch {
	case *serve:
		err = beServer(o.heartbeat)
	case *client != "":
		err = beClients(*client, o.conns[0])
	default:
		err = o.run()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run measures each number in each round.
func (o *options) run() error {
	fmt.Printf("%11s %17s %14s %15s %11s %11s\n", "connections", "resident per conn", "CPU per event", "events per sec", "worst turn", "worst lag")
	for range o.rounds {
		for _, n := range o.conns {
			fmt.Fprintf(os.Stderr, "\r\x1b[K%d connections", n)
			if err := o.measure(n); err != nil {
				return fmt.Errorf("%d connections: %w", n, err)
			}
		}
	}
	return nil
}

// A reading is what a server says of itself.
type reading struct {
	Resident int
	CPU      time.Duration
	Events   uint64 // messages, and callbacks of the wheel
	Conns    int
	Turn     time.Duration // the longest of the last 10 to 20 seconds
	Lag      time.Duration
}

func (o *options) measure(n int) error {
	server, err := child.Spawn("-serve", "-heartbeat", o.heartbeat.String())
	if err != nil {
		return err
	}
	defer server.End()
	addr, err := server.Line()
	if err != nil {
		return err
	}
	empty, err := read(server, "gc")
	if err != nil {
		return err
	}
	clients, err := child.Spawn("-client", addr, "-conns", strconv.Itoa(n))
	if err != nil {
		return err
	}
	defer clients.End()
	if _, err = clients.Line(); err != nil {
		return err
	}
	time.Sleep(o.heartbeat + time.Second) // all were pinged once
	before, err := read(server, "")
	if err != nil {
		return err
	}
	time.Sleep(o.window)
	after, err := read(server, "")
	if err != nil {
		return err
	}
	full, err := read(server, "gc")
	if err != nil {
		return err
	}
	if before.Conns != n || after.Conns != n {
		return fmt.Errorf("%d and then %d are open", before.Conns, after.Conns)
	}
	events := after.Events - before.Events
	fmt.Printf("\r\x1b[K%11d %15d B %11.2f µs %15.0f %11v %11v\n", n, (full.Resident-empty.Resident)/n,
		float64((after.CPU-before.CPU).Nanoseconds())/1e3/float64(events), float64(events)/o.window.Seconds(),
		after.Turn.Round(10*time.Microsecond), after.Lag.Round(10*time.Microsecond))
	return nil
}

// read asks the server for a reading, after what it is told to do.
func read(server *child.Process, what string) (r reading, err error) {
	s, err := server.Ask(what)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(s), &r)
}
