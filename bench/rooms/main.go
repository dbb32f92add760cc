//go:build linux

// Command rooms measures rooms over two processes, on Redis, beside centrifugal/centrifuge with its
// Redis broker: time of a delivery across processes, CPU time of the servers per delivery and of
// Redis per message, memory of a connection. It fills the table Rooms on Redis of
// docs/performance.md:
//
//	go run ./rooms                # plain rooms
//	go run ./rooms -ordered       # ordered ones, beside history and recovery
//	go run ./rooms -quick
//
// Each contender has two processes of its own and a redis-server of its own; they take turns.
// Clients speak WebSocket, and all run in this process, whose CPU time does not count. It needs the
// program redis-server.
package main

import (
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

type options struct {
	conns, rooms, rate, size int
	length                   time.Duration
	rounds                   int
	ordered                  bool
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("rooms: ")
	var o options
	role := flag.String("serve", "", "used by the program itself: be this server, of Redis at an address")
	flag.IntVar(&o.conns, "conns", 2000, "clients, half on each process")
	flag.IntVar(&o.rooms, "rooms", 100, "rooms")
	flag.IntVar(&o.rate, "rate", 250, "messages per second in all rooms")
	flag.IntVar(&o.size, "size", 64, "bytes of padding in a message")
	flag.DurationVar(&o.length, "for", 5*time.Second, "length of a round")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each")
	flag.BoolVar(&o.ordered, "ordered", false, "ordered rooms, beside history and recovery")
	docs := flag.String("docs", "", measure.Docs)
	quick := flag.Bool("quick", false, "one round of two seconds with 200 clients")
	flag.Parse()
	if *role != "" {
		name, addr, _ := strings.Cut(*role, " ")
		serve(name, addr, o.ordered)
		return
	}
	if *quick {
		o.conns, o.rooms, o.rounds, o.length = 200, 20, 1, 2*time.Second
	}
	results := &measure.Results{Base: contenders[1]}
	for round := range o.rounds {
		for i := range contenders {
			name := contenders[(i+round)%len(contenders)]
			measure.Progress("round %d of %d: %s", round+1, o.rounds, name)
			if err := o.measure(name, results); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
		}
	}
	measure.Progress("")
	name := "rooms"
	if o.ordered {
		name = "ordered rooms"
	}
	check(results.Show(name, *docs))
}

var contenders = []string{"loopwheel", "centrifuge"}

// measure runs one contender once.
func (o *options) measure(name string, results *measure.Results) error {
	redis, err := measure.StartRedis()
	if err != nil {
		return err
	}
	defer redis.Stop()
	var servers []*measure.Process
	for range 2 {
		s, err := measure.Self(name, "-serve", name+" "+redis.Addr, fmt.Sprintf("-ordered=%v", o.ordered))
		if err != nil {
			return err
		}
		defer s.End()
		servers = append(servers, s)
	}
	memory := func() int { return servers[0].Resident() + servers[1].Resident() }
	cpu := func() time.Duration { return servers[0].CPU() + servers[1].CPU() }
	before := memory()
	c := newCrowd(name, []string{servers[0].Addr, servers[1].Addr}, *o)
	defer c.close()
	if err := c.connect(); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	perConn := float64(memory()-before) / 1024 / float64(o.conns)
	c.talk(time.Second) // to warm up
	c.reset()
	used, redisUsed := cpu(), redis.CPU()
	said := c.talk(o.length)
	used, redisUsed = cpu()-used, redis.CPU()-redisUsed
	deliveries := int(c.delivered.Load())
	if want := said * (o.conns / o.rooms); deliveries != want {
		return fmt.Errorf("%d deliveries, want %d; %s", deliveries, want, c.fault())
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	across, local := c.late(true), c.late(false)
	results.Add("across processes: median, ms", name, ms(measure.Quantile(across, 0.5)))
	results.Add("across processes: p99, ms", name, ms(measure.Quantile(across, 0.99)))
	results.Add("in one process: median, ms", name, ms(measure.Quantile(local, 0.5)))
	results.Add("in one process: p99, ms", name, ms(measure.Quantile(local, 0.99)))
	results.Add("CPU of the servers per delivery, µs", name, ms(used)*1e3/float64(deliveries))
	results.Add("CPU of Redis per message, µs", name, ms(redisUsed)*1e3/float64(said))
	results.Add("memory of a connection, KB", name, perConn)
	return nil
}
