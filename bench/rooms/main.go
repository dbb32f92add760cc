//go:build linux

// Command rooms measures rooms of WebSocket clients. Each room has one member who speaks, and every
// member must get each message once and in order. It fills the tables of docs/performance.md about
// rooms:
//
//	go run ./rooms                # over two processes, by Redis, beside centrifugal/centrifuge
//	go run ./rooms -ordered       # the same with ordered rooms, beside history and recovery
//	go run ./rooms -quick         # each of them with -quick
//
// Each contender has processes of its own, and a redis-server of its own; they take turns. All
// clients run in this process, whose CPU time does not count. It needs the program redis-server.
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
	conns, rooms, rate int
	length             time.Duration
	ordered            bool
}

func main() {
	measure.Begin("rooms")
	var o options
	role := flag.String("serve", "", "used by the program itself: be this server, of Redis at an address")
	flag.IntVar(&o.conns, "conns", 2000, "clients, half on each process")
	flag.IntVar(&o.rooms, "rooms", 100, "rooms")
	flag.IntVar(&o.rate, "rate", 250, "messages per second in all rooms")
	flag.DurationVar(&o.length, "for", 5*time.Second, "length of a round")
	rounds := flag.Int("rounds", 3, "rounds of each")
	flag.BoolVar(&o.ordered, "ordered", false, "ordered rooms, beside history and recovery")
	docs := flag.String("docs", "", measure.Docs)
	quick := flag.Bool("quick", false, "one round of two seconds with 200 clients")
	flag.Parse()
	if *role != "" {
		name, addr, _ := strings.Cut(*role, " ")
		go measure.Obey(nil)
		log.Fatal(serve(name, addr, o.ordered))
	}
	if *quick {
		measure.Preset(flag.CommandLine, map[string]string{"conns": "200", "rooms": "20", "rounds": "1", "for": "2s"})
	}
	table, contenders := "rooms", []string{"loopwheel", "centrifuge"}
	if o.ordered {
		table = "ordered rooms"
	}
	results := &measure.Results{Base: contenders[1]}
	for round, name := range measure.Turns(*rounds, contenders) {
		measure.Progress("round %d of %d: %s", round+1, *rounds, name)
		if err := o.measure(name, results); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
	}
	measure.Progress("")
	measure.Check(results.Show(table, *docs))
}

// measure runs one contender once.
func (o *options) measure(name string, results *measure.Results) error {
	redis, err := measure.StartRedis()
	if err != nil {
		return err
	}
	defer redis.Stop()
	var servers []*measure.Process
	for range 2 {
		s, err := measure.Self(name, 0, "-serve", name+" "+redis.Addr, fmt.Sprintf("-ordered=%v", o.ordered))
		if err != nil {
			return err
		}
		defer s.End()
		servers = append(servers, s)
	}
	usage := func() (memory int, cpu time.Duration) {
		for _, s := range servers {
			memory += s.Resident()
			cpu += s.CPU()
		}
		return memory, cpu
	}
	empty, _ := usage()
	c := newCrowd(name, servers, o)
	defer c.close()
	if err := c.connect(); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	full, _ := usage()
	c.talk(time.Second) // to warm up
	if _, _, err := c.results(); err != nil {
		return err
	}
	_, before := usage()
	redisBefore := redis.CPU()
	said := c.talk(o.length)
	_, after := usage()
	redisUsed := redis.CPU() - redisBefore
	across, local, err := c.results()
	if err != nil {
		return err
	}
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	for _, late := range []struct {
		where string
		waits []time.Duration
	}{{"across processes", across}, {"in one process", local}} {
		if len(late.waits) > 0 {
			results.Add(late.where+": median, ms", name, ms(measure.Quantile(late.waits, 0.5)))
			results.Add(late.where+": p99, ms", name, ms(measure.Quantile(late.waits, 0.99)))
		}
	}
	results.Add("CPU of the servers per delivery, µs", name, ms(after-before)*1e3/float64(len(across)+len(local)))
	results.Add("CPU of Redis per message, µs", name, ms(redisUsed)*1e3/float64(said))
	results.Add("memory of a connection, KB", name, float64(full-empty)/1024/float64(o.conns))
	return nil
}
