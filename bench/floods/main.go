// Command floods measures what others cost a client who shares a loop with them: floods of tiny
// messages with a handler that takes 0.6 or 10 us, of WebSocket messages that are a thousand times
// as long as on the wire (bombs), of empty ones and of those of 16 bytes (small), and of frames of
// 1 MiB (huge), by 1 and by 20 connections. It shows how long a prober beside them waits, and what
// becomes of the floods themselves: a share of the loop that costs them much would be no good.
// Beside the rate it shows the time that the server had a core, in and outside of the kernel, and
// the time for which it waited for one.
//
//	go run ./floods [-before BINARY] [-rounds 3] [-for 2s] [-cells tiny,bombs,huge,empty,small]
//	                [-servers loopwheel,gnet,net]
//
// The server has one loop (for package net: goroutines on all Ps). Server, floods and prober are
// three processes. -before is this command as built at another commit, whose server then takes part
// as "before". Servers take turns, round after round; the tables show medians, and the least and
// the greatest of what counts.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/child"
)

// A cell is one kind of flood, by so many connections.
type cell struct {
	kind   string
	cost   time.Duration // of the handler of each message
	floods int
}

func (c cell) String() string {
	if c.cost > 0 {
		return fmt.Sprintf("%s, %v", c.kind, c.cost)
	}
	return c.kind
}

func cells(kinds string) (all []cell) {
	for _, kind := range strings.Split(kinds, ",") {
		costs := []time.Duration{0}
		if kind == "tiny" {
			costs = []time.Duration{600 * time.Nanosecond, 10 * time.Microsecond}
		}
		for _, cost := range costs {
			all = append(all, cell{kind, cost, 1}, cell{kind, cost, 20})
		}
	}
	return all
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("floods: ")
	var (
		before  = flag.String("before", "", "this command as built at another commit")
		rounds  = flag.Int("rounds", 3, "rounds")
		length  = flag.Duration("for", 2*time.Second, "length of each run")
		kinds   = flag.String("cells", "tiny,bombs,huge,empty,small", "kinds of floods")
		servers = flag.String("servers", "loopwheel,gnet,net", "who takes part")
		serve   = flag.String("serve", "", "be a server: loopwheel, gnet or net")
		flood   = flag.String("flood", "", "be the floods, to this address")
		kind    = flag.String("kind", "tiny", "with -serve and -flood")
		turns   = flag.Int("spin", 0, "with -serve: what the handler of each message does")
		conns   = flag.Int("conns", 1, "with -flood")
	)
	flag.Parse()
	var err error
	switch {
	case *serve != "":
		err = runServer(*serve, *kind, *turns)
	case *flood != "":
		err = runFloods(*flood, *kind, *conns)
	default:
		err = compare(strings.Split(*servers, ","), *before, cells(*kinds), *rounds, *length)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// results are by server and round.
type results map[string][]result

func compare(servers []string, before string, all []cell, rounds int, length time.Duration) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	binaries := make(map[string]string)
	for _, s := range servers {
		binaries[s] = self
	}
	if before != "" {
		servers = slices.Insert(servers, 1, "before")
		binaries["before"] = before
	}
	perMicro := calibrate()
	fmt.Println("| flood | connections | server | p50 ms | p99 ms | worst | messages/s | per CPU second | of a core: user | system | waited for one | beside before |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, c := range all {
		rs := make(results)
		for range rounds {
			for _, s := range servers {
				if s == "gnet" && isWebSocket(c.kind) {
					continue // it knows no WebSocket
				}
				r, err := run(binaries[s], s, c, int(perMicro*float64(c.cost)/float64(time.Microsecond)), length)
				if err != nil {
					return fmt.Errorf("%s, %v: %w", s, c, err)
				}
				rs[s] = append(rs[s], r)
			}
		}
		for _, s := range servers {
			if len(rs[s]) > 0 {
				rs.print(c, s)
			}
		}
	}
	return nil
}

func (rs results) print(c cell, server string) {
	of := func(f func(result) float64) []float64 {
		var v []float64
		for _, r := range rs[server] {
			v = append(v, f(r))
		}
		return v
	}
	perSecond := func(r result) float64 { return r.messages / r.took.Seconds() }
	perCPU := func(r result) float64 { return r.messages / r.cpu.Seconds() }
	perTime := func(part func(child.Usage) time.Duration) float64 {
		return median(of(func(r result) float64 { return part(r.usage).Seconds() / r.took.Seconds() }))
	}
	beside := ""
	if b := rs["before"]; len(b) > 0 {
		var rate, cpu []float64
		for i, r := range rs[server] {
			rate = append(rate, perSecond(r)/perSecond(b[i]))
			cpu = append(cpu, perCPU(r)/perCPU(b[i]))
		}
		beside = fmt.Sprintf("rate %s, per CPU second %s", span(rate), span(cpu))
	}
	fmt.Printf("| %v | %d | %s | %s | %s | %.3g | %.3g | %.3g | %.3f | %.3f | %.3f | %s |\n", c, c.floods, server,
		span(of(func(r result) float64 { return ms(r.quantile(0.5)) })),
		span(of(func(r result) float64 { return ms(r.quantile(0.99)) })),
		slices.Max(of(func(r result) float64 { return ms(r.quantile(1)) })),
		median(of(perSecond)), median(of(perCPU)),
		perTime(func(u child.Usage) time.Duration { return u.User }),
		perTime(func(u child.Usage) time.Duration { return u.System }),
		perTime(func(u child.Usage) time.Duration { return u.Waited }), beside)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(s []float64) float64 { return slices.Sorted(slices.Values(s))[len(s)/2] }

// span formats the median, with the least and the greatest.
func span(s []float64) string {
	return fmt.Sprintf("%.3g (%.3g–%.3g)", median(s), slices.Min(s), slices.Max(s))
}
