// Command tls compares the TLS of loopwheel with Go's net and crypto/tls, and with nbio's, in turns
// within one run: CPU time per echoed message, handshakes per CPU second, memory of idle
// connections.
//
//	go run ./tls             # all, five rounds
//	go run ./tls -quick      # a minute
//
// Each server is a process of its own; frames have a 4-byte length. What is measured is the
// server's: CPU time by getrusage, live heap after collections, resident memory by /proc (Linux
// only).
package main

import (
	"crypto/tls"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/child"
)

// options are what the flags say.
type options struct {
	peers  []string
	rounds int
	window time.Duration
	conns  int
	idlers int
	begun  int
	depth  int
	procs  int
	only   string

	profile string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("tls: ")
	var o options
	serve := flag.String("serve", "", "be the server of this `peer`")
	peers := flag.String("peers", "loopwheel,net,nbio", "which `peers` to compare, by commas")
	quick := flag.Bool("quick", false, "two short rounds")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured")
	flag.DurationVar(&o.window, "for", time.Second, "how long each measurement takes")
	flag.IntVar(&o.conns, "conns", 50, "connections that echo at the same time")
	flag.IntVar(&o.depth, "depth", 1, "messages that are under way on each of them")
	flag.IntVar(&o.idlers, "idlers", 2000, "idle connections")
	flag.IntVar(&o.begun, "begun", 10_000, "handshakes that are begun and left open")
	flag.IntVar(&o.procs, "procs", 2, "GOMAXPROCS of each server")
	flag.StringVar(&o.profile, "profile", "", "have each server write a CPU profile to this `file`, which its peer's name is put behind")
	flag.StringVar(&o.only, "only", "", "only measurements whose name contains this")
	flag.Parse()
	if *serve != "" {
		log.Fatal(runServer(*serve, o.profile))
	}
	if *quick {
		o.rounds, o.window, o.idlers, o.begun = 2, 400*time.Millisecond, 500, 1000
	}
	o.peers = strings.Split(*peers, ",")
	if err := o.run(); err != nil {
		log.Fatal(err)
	}
}

// A measurement is one figure of a server: less is better.
type measurement struct {
	name string
	unit string
	run  func(o *options, s *server) (float64, error)
}

var measurements = []measurement{
	{"CPU per echo, 64 B", "us", func(o *options, s *server) (float64, error) { return o.echo(s, 64) }},
	{"CPU per echo, 16 KiB", "us", func(o *options, s *server) (float64, error) { return o.echo(s, 16<<10) }},
	{"CPU per handshake", "us", (*options).handshakes},
	{"live heap per idle connection", "B", func(o *options, s *server) (float64, error) { return o.idle(s, 0, "heap") }},
	{"resident per idle connection", "B", func(o *options, s *server) (float64, error) { return o.idle(s, 0, "resident") }},
	{"live heap after 16 KiB messages", "B", func(o *options, s *server) (float64, error) { return o.idle(s, 16<<10, "heap") }},
	{"resident after 16 KiB messages", "B", func(o *options, s *server) (float64, error) { return o.idle(s, 16<<10, "resident") }},
	{"p99 of an echo, 100 connections", "us", func(o *options, s *server) (float64, error) { return o.latency(s, 0) }},
	{"p99 beside handshakes left open", "us", func(o *options, s *server) (float64, error) { return o.latency(s, o.begun) }},
	{"goroutines of all idle connections", "", func(o *options, s *server) (float64, error) { return o.idle(s, 0, "goroutines") }},
}

// run measures in turns, so that what else the machine does concerns all.
func (o *options) run() error {
	for _, m := range measurements {
		if !strings.Contains(m.name, o.only) {
			continue
		}
		values := make(map[string][]float64)
		for range o.rounds {
			for _, p := range o.peers {
				v, err := o.measure(m, p)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", m.name, p, err)
				}
				values[p] = append(values[p], v)
			}
		}
		o.report(m, values)
	}
	return nil
}

// measure runs m on a new server.
func (o *options) measure(m measurement, peer string) (float64, error) {
	s, err := o.start(peer)
	if err != nil {
		return 0, err
	}
	defer s.End()
	return m.run(o, s)
}

func (o *options) report(m measurement, values map[string][]float64) {
	fmt.Printf("%s\n", m.name)
	var base float64
	if v := values["net"]; len(v) > 0 {
		base = median(v)
	}
	for _, p := range o.peers {
		v := values[p]
		fmt.Printf("  %-10s %9.2f %-2s (%.2f to %.2f)", p, median(v), m.unit, slices.Min(v), slices.Max(v))
		if base > 0 {
			fmt.Printf("  %.2f of net's", median(v)/base)
		}
		fmt.Println()
	}
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// A server is a child process.
type server struct {
	*child.Process
	addr string
}

func (o *options) start(peer string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-serve", peer, "-profile", o.profile)
	cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", o.procs))
	p, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	addr, err := p.Line()
	return &server{p, addr}, err
}

// usage is what a server says of itself.
type usage struct {
	cpu                        time.Duration
	heap, resident, goroutines int
}

// ask returns the usage: after collections, if memory is asked for.
func (s *server) ask(command string) (u usage, err error) {
	answer, err := s.Ask(command)
	if err == nil {
		_, err = fmt.Sscanln(answer, &u.cpu, &u.heap, &u.resident, &u.goroutines)
	}
	return u, err
}

// dial tries again if it fails: nbio's server answers some handshakes with an internal error.
func (s *server) dial() (c *tls.Conn, err error) {
	for range 3 {
		if c, err = tls.Dial("tcp", s.addr, clientConfig); err == nil {
			break
		}
	}
	return c, err
}

// open makes n connections, some at a time.
func (s *server) open(n int) ([]*tls.Conn, error) {
	conns := make([]*tls.Conn, n)
	var wg sync.WaitGroup
	var failed atomic.Value
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < n; i += 8 {
				c, err := s.dial()
				if err == nil {
					err = echoOnce(c, make([]byte, 4+64))
				}
				if err != nil {
					failed.Store(err)
					return
				}
				conns[i] = c
			}
		})
	}
	wg.Wait()
	err, _ := failed.Load().(error)
	return conns, err
}

func closeAll(conns []*tls.Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// echoOnce sends frame and reads it back.
func echoOnce(c *tls.Conn, frame []byte) error {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return echoAll(c, frame)
}

// frames returns n frames of a size.
func frames(n, size int) (all []byte) {
	for range n {
		all = binary.BigEndian.AppendUint32(all, uint32(size))
		all = append(all, make([]byte, size)...)
	}
	return all
}

func echoAll(c *tls.Conn, frames []byte) error {
	if _, err := c.Write(frames); err != nil {
		return err
	}
	_, err := io.ReadFull(c, frames)
	return err
}

// echo returns the CPU time of one message.
func (o *options) echo(s *server, size int) (float64, error) {
	conns, err := s.open(o.conns)
	if err != nil {
		return 0, err
	}
	defer closeAll(conns)
	var n atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	var failed atomic.Value
	for _, c := range conns {
		wg.Go(func() {
			frames := frames(o.depth, size)
			for !over.Load() {
				if err := echoAll(c, frames); err != nil {
					failed.Store(err)
					return
				}
				n.Add(int64(o.depth))
			}
		})
	}
	time.Sleep(o.window / 4) // until buffers and records have their sizes
	before, err := s.ask("cpu")
	if err != nil {
		return 0, err
	}
	first := n.Load()
	time.Sleep(o.window)
	after, err := s.ask("cpu")
	count := n.Load() - first
	over.Store(true)
	wg.Wait()
	if e, ok := failed.Load().(error); ok {
		return 0, e
	}
	return (after.cpu - before.cpu).Seconds() * 1e6 / float64(count), err
}

// handshakes returns the CPU time of one, with the connection around it.
func (o *options) handshakes(s *server) (float64, error) {
	var n atomic.Int64
	var failed atomic.Value
	var wg sync.WaitGroup
	before, err := s.ask("cpu")
	if err != nil {
		return 0, err
	}
	end := time.Now().Add(o.window)
	for range 8 {
		wg.Go(func() {
			for time.Now().Before(end) {
				c, err := s.dial()
				if err == nil {
					err = echoOnce(c, make([]byte, 4+64))
					c.Close()
				}
				if err != nil {
					failed.Store(err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	if e, ok := failed.Load().(error); ok {
		return 0, e
	}
	after, err := s.ask("cpu")
	return (after.cpu - before.cpu).Seconds() * 1e6 / float64(n.Load()), err
}

// idle returns what a connection holds that has echoed messages of a size, if any, and is idle now.
func (o *options) idle(s *server, size int, what string) (float64, error) {
	warm, err := s.open(50) // what is there once is there then
	if err != nil {
		return 0, err
	}
	closeAll(warm)
	time.Sleep(100 * time.Millisecond)
	before, err := s.ask("memory")
	if err != nil {
		return 0, err
	}
	conns, err := s.open(o.idlers)
	if err != nil {
		return 0, err
	}
	defer closeAll(conns)
	if size > 0 {
		frame := make([]byte, 4+size)
		for range 12 { // records are full after 128 KiB
			for _, c := range conns {
				if err := echoOnce(c, frame); err != nil {
					return 0, err
				}
			}
		}
	}
	after, err := s.ask("memory")
	switch what {
	case "heap":
		return float64(after.heap-before.heap) / float64(o.idlers), err
	case "resident":
		return float64(after.resident-before.resident) / float64(o.idlers), err
	}
	return float64(after.goroutines - before.goroutines), err
}
