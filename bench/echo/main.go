//go:build linux

// Command echo drives the same server on several libraries, in turns within one run, and tells the
// CPU time of a message, the time to its answer, and the memory of a connection. It fills the
// tables of docs/performance.md that are named here:
//
//	go run ./echo              # An echo: 13 loads, seven servers, five rounds: a quarter of an hour
//	go run ./echo tls          # TLS
//	go run ./echo proxy        # A proxy
//	go run ./echo -quick tls   # each of them with -quick: less than a minute
//	go run ./echo -cells "64 B, depth 1" -peers loopwheel,gnet -rounds 9
//
// Frames have a 4-byte big-endian length. Each server is a process of its own with one thread that
// runs its code, unless -procs says otherwise. Each measurement has new connections. Where a load
// has a rate, times count from when a message was to be sent. A server whose program is not
// installed is left out, and the reason printed.
package main

import (
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// header is the size of a frame's length field.
const header = 4

// options are what the flags say.
type options struct {
	peers, cells string
	rounds       int
	window       time.Duration // of one measurement
	idlers       int           // connections that say little
	procs        int
	dir          string // of what is made for servers in other languages
	docs         string
}

// A job is a table of docs/performance.md, or several.
type job struct {
	peers []peer
	cells []cell
	idle  []int // the memory of connections that have said messages of these sizes
	tls   bool
	base  string // the first server is compared with this one
}

var jobs = map[string]job{
	"echo":  {peers: echoPeers, cells: echoCells, idle: []int{64}, base: "gnet"},
	"tls":   {peers: tlsPeers, cells: tlsCells, idle: []int{64, 16 << 10}, tls: true, base: "net + crypto/tls"},
	"proxy": {peers: proxyPeers, cells: proxyCells, idle: []int{64}, base: "HAProxy"},
}

func main() {
	measure.Begin("echo")
	var o options
	serve := flag.String("serve", "", "be the server of this `peer`: used by the program itself, and by ../instructions/run")
	told := flag.String("setup", `{"Loops": 1, "Timeout": 60000000000}`, "see -serve: a setup in JSON")
	client := flag.String("client", "", "send -n messages on 50 connections to this `address`, -depth at once, of -size bytes: for ../instructions/run")
	n, depth, size := flag.Int("n", 1000, "see -client"), flag.Int("depth", 1, "see -client"), flag.Int("size", 64, "see -client")

	flag.StringVar(&o.peers, "peers", "", "only these `servers`, by commas; the first is compared with the second")
	flag.StringVar(&o.cells, "cells", "", "only loads whose name contains one of `these`, by semicolons, such as \"64 B\" or \"16 KiB, depth 16\"")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured")
	flag.DurationVar(&o.window, "for", time.Second, "how long each measurement takes")
	flag.IntVar(&o.idlers, "idlers", 9000, "how many connections are idle")
	flag.IntVar(&o.procs, "procs", max(1, runtime.NumCPU()/2), "GOMAXPROCS of each server, and its loops")
	quick := flag.Bool("quick", false, "one short round, but for what other flags say")
	flag.StringVar(&o.docs, "docs", "", measure.Docs)
	flag.Parse()
	switch {
	case *serve != "":
		log.Fatal(runServer(*serve, *told))
	case *client != "":
		measure.Check(rounds(*client, *n, *depth, *size))
		return
	}
	name := "echo"
	if flag.NArg() > 0 {
		name = flag.Arg(0)
	}
	if *quick {
		preset := map[string]string{"rounds": "1", "for": "300ms", "idlers": "1000"}
		if name == "echo" {
			preset["cells"] = "100 conns, 64 B; 16 KiB, depth 1; a connection each; idle"
		}
		measure.Preset(flag.CommandLine, preset)
	}
	j, ok := jobs[name]
	if !ok {
		log.Fatalf("there is no job %q, but %v", name, slices.Sorted(maps.Keys(jobs)))
	}
	measure.Check(o.run(name, j))
}

// run starts the servers of a job, measures, and prints.
func (o *options) run(name string, j job) (err error) {
	if o.dir, err = os.MkdirTemp("", "echo-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	if j.peers, err = o.chosen(j.peers); err != nil {
		return err
	}
	if o.peers != "" {
		j.base = ""
		if len(j.peers) > 1 {
			j.base = j.peers[1].title
		}
	}
	s := setup{Loops: o.procs, Timeout: time.Minute, TLS: j.tls, Dir: o.dir}
	if name == "proxy" {
		backend, err := startServer(netPeer, s)
		if err != nil {
			return err
		}
		defer backend.End()
		s.To = backend.Addr
	}
	servers, err := startServers(j.peers, s)
	if err != nil {
		return err
	}
	defer stopServers(servers)
	for _, s := range servers {
		if s.peer.slow { // until its code is compiled
			measure.Progress("%s gets warm", s.Name)
			if _, err := (&options{window: 3 * time.Second}).measure(s, cell{conns: 100, size: 64, depth: 1}); err != nil {
				return err
			}
		}
	}
	all, err := o.matrix(j, servers)
	if err != nil {
		return err
	}
	measure.Progress("")
	for _, what := range []string{tableCPU, tableP99, tableMemory} {
		docs := o.docs
		if what == tableP99 && name != "echo" || what == tableMemory && name == "proxy" {
			docs = "" // the page does not have these
		}
		if t := all[what]; t != nil {
			if err := t.Show(name+" "+what, docs); err != nil {
				return err
			}
		}
	}
	return nil
}

// chosen returns those of all peers that are asked for, and whose programs there are.
func (o *options) chosen(all []peer) (some []peer, err error) {
	wanted := all
	if o.peers != "" {
		wanted = nil
		for name := range strings.SplitSeq(o.peers, ",") {
			i := slices.IndexFunc(all, func(p peer) bool { return p.name == name })
			if i < 0 {
				return nil, fmt.Errorf("there is no server %q, but %s", name, strings.Join(names(all), ", "))
			}
			wanted = append(wanted, all[i])
		}
	}
	for _, p := range wanted {
		if reason := p.missing(); reason != "" {
			fmt.Fprintf(os.Stderr, "%s is left out: %s\n", p.name, reason)
			continue
		}
		some = append(some, p)
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("no server is left")
	}
	return some, nil
}
