// Command delay measures timing/rediswheel beside hibiken/asynq, in turns, on a redis-server that
// it starts.
//
//	go run ./delay -rounds 5
//	go run ./delay -only memory -memory 1000000
//	go run ./delay -only far
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// settings are what the command line says.
type settings struct {
	rounds int
	tasks  int
	memory int
	idle   time.Duration
	only   string
	shards int
}

func main() {
	var s settings
	flag.IntVar(&s.rounds, "rounds", 3, "measure this often, in turns")
	flag.IntVar(&s.tasks, "tasks", 20_000, "tasks to add, and to run, in each round")
	flag.IntVar(&s.memory, "memory", 100_000, "tasks to hold for the memory's measure")
	flag.DurationVar(&s.idle, "idle", 10*time.Second, "how long to look at idle workers")
	flag.StringVar(&s.only, "only", "", "only this: add, run, lateness, idle, memory or far")
	flag.IntVar(&s.shards, "shards", 0, "of rediswheel; 0 means its default")
	flag.Parse()
	r, err := startRedis()
	if err != nil {
		log.Fatal(err)
	}
	defer r.stop()
	r.shards = s.shards
	out := &results{}
	for _, m := range []struct {
		name string
		do   func(*redisServer, settings, *results) error
	}{{"add", adds}, {"run", runs}, {"lateness", lateness}, {"idle", idle}, {"memory", memory}, {"far", far}} {
		if s.only != "" && s.only != m.name {
			continue
		}
		if err := m.do(r, s, out); err != nil {
			r.stop()
			log.Fatalf("%s: %v", m.name, err)
		}
	}
	out.print(os.Stdout)
}

// results are medians to be, by measure and contender, in the order they came.
type results struct {
	names  []string
	values map[string][]float64
}

func (r *results) add(measure, contender string, v float64) {
	name := measure + "\t" + contender
	if r.values == nil {
		r.values = make(map[string][]float64)
	}
	if _, ok := r.values[name]; !ok {
		r.names = append(r.names, name)
	}
	r.values[name] = append(r.values[name], v)
}

func (r *results) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "measure\t\tmedian\tmin\tmax")
	slices.SortStableFunc(r.names, func(a, b string) int {
		x, _, _ := strings.Cut(a, "\t")
		y, _, _ := strings.Cut(b, "\t")
		return r.first(x) - r.first(y)
	})
	for _, name := range r.names {
		row(t, name, r.values[name])
		measure, who, _ := strings.Cut(name, "\t")
		ours, theirs := r.values[measure+"\trediswheel"], r.values[measure+"\tasynq"]
		if who != "asynq" || len(ours) != len(theirs) {
			continue
		}
		ratios := make([]float64, len(ours)) // of the same rounds
		for i := range ratios {
			ratios[i] = ours[i] / theirs[i]
		}
		row(t, measure+"\tratio", ratios)
	}
}

func row(w io.Writer, name string, values []float64) {
	v := slices.Sorted(slices.Values(values))
	fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\n", name, v[len(v)/2], v[0], v[len(v)-1])
}

// first is where a measure came first.
func (r *results) first(measure string) int {
	return slices.IndexFunc(r.names, func(n string) bool { return strings.HasPrefix(n, measure+"\t") })
}
