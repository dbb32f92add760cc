// Command echo drives the same echo server on several networking libraries, in turns within one
// run, and says what each message cost: see -help.
//
//	go run ./echo -quick            # under two minutes
//	go run ./echo                   # all cells, five rounds
//	go run ./echo -idle             # what it costs to watch over idle connections
//	go run ./echo -out /tmp/run     # writes echo.csv and echo.svg there
//	go run ./echo -docs ../docs /tmp/run/echo.csv
//	go run ./echo -large -peers loopwheel,gnet,gnet-256k -cells "16 KiB; 256 KiB, depth 1"
//
// Each server is a process of its own. Frames have a 4-byte big-endian length. Before each
// measurement connections are made anew; the servers that are not being measured have none.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/place"
)

// header is the size of a frame's length field.
const header = 4

// options are what the flags say.
type options struct {
	peers   []string
	conns   []int
	sizes   []int
	depths  []int
	more    []cell // beside those of conns, sizes and depths
	rounds  int
	window  time.Duration // of one measurement
	idlers  int
	rest    time.Duration // how long they are watched
	timeout time.Duration // of idle connections
	procs   int
	place   string // of server and client
	out     string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("echo: ")
	o := options{}
	serve := flag.String("serve", "", "be the server of this `peer`, told what to do on standard input")
	peers := flag.String("peers", "", "which `peers` to compare, by commas; empty means all")
	quick := flag.Bool("quick", false, "one short round of all, in less than two minutes, but for what other flags say")
	idle := flag.Bool("idle", false, "measure what it costs to watch over idle connections")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured")
	flag.DurationVar(&o.window, "for", time.Second, "how long each measurement takes")
	flag.IntVar(&o.idlers, "idlers", 10_000, "how many connections are idle; 0 leaves that out")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "the idle timeout of -idle")
	flag.IntVar(&o.procs, "procs", max(1, runtime.NumCPU()/2), "GOMAXPROCS of each server, and its loops")
	flag.StringVar(&o.place, "place", "", place.Usage)
	cells := flag.String("cells", "", "only cells whose name contains one of `these`, by semicolons, such as \"64 B\" or \"16 KiB, depth 16\"")
	large := flag.Bool("large", false, "frames of 64 and 256 KiB as well")
	docs := flag.String("docs", "", "measure nothing: bring the tables in this `directory` to what runs with -out have written into the CSV files that follow")
	flag.StringVar(&o.out, "out", "", "write CSV and SVG into this `directory`")
	flag.Parse()
	if *serve != "" {
		log.Fatal(runServer(*serve))
	}
	if *docs != "" {
		if err := updateDocs(*docs, flag.Args()); err != nil {
			log.Fatal(err)
		}
		return
	}
	o.conns, o.sizes, o.depths = []int{100, 1000}, []int{64, 1 << 10, 16 << 10}, []int{1, 16}
	o.more = []cell{{conns: 100, size: 64, rate: 500}, {conns: 100, size: 64, rate: 20_000},
		{conns: 100, size: 64, rate: 60_000}, {conns: 50, size: 64, anew: true}}
	if *large {
		o.sizes = append(o.sizes, 64<<10, 256<<10)
	}
	o.rest = 5 * time.Second
	if *quick {
		o.rest = time.Second
		hurry(flag.CommandLine)
	}
	if err := o.run(*peers, *cells, *idle); err != nil {
		log.Fatal(err)
	}
}

// hurry sets what -quick stands for, but for what was asked for by a flag of its own.
func hurry(flags *flag.FlagSet) {
	quick := map[string]string{"rounds": "1", "for": "400ms", "idlers": "1000", "timeout": "3s"}
	flags.Visit(func(f *flag.Flag) { delete(quick, f.Name) })
	for name, value := range quick {
		_ = flags.Set(name, value)
	}
}

// run starts the servers and measures.
func (o *options) run(peers, only string, idle bool) error {
	o.peers = names(cellPeers)
	known := names(slices.Concat(cellPeers, morePeers, floorPeers))
	if idle {
		known = names(idlePeers)
		o.peers = known
	}
	if peers != "" {
		o.peers = strings.Split(peers, ",")
	}
	for _, p := range o.peers {
		if !slices.Contains(known, p) {
			return fmt.Errorf("no peer %q: there are %s", p, strings.Join(known, ", "))
		}
	}
	if o.out != "" { // now, and not after ten minutes of measuring
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
	}
	if idle {
		return o.idling()
	}
	return o.matrix(only)
}

// progress tells on standard error what goes on, over itself on a terminal.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "\r\x1b[K"+format, args...)
}

func progressEnds() { fmt.Fprint(os.Stderr, "\r\x1b[K") }
