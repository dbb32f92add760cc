package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A summary is one peer's row of one cell: medians over the rounds.
type summary struct {
	cell, peer    string
	rate          float64
	cpu           spread
	ratio         float64 // the median of what it takes of the first peer's CPU, round by round
	p50, p99, p9s time.Duration
	rss           float64
}

// A spread is a median, with the least and the greatest.
type spread struct{ median, least, most float64 }

func spreadOf(v []float64) spread {
	v = slices.Sorted(slices.Values(v))
	return spread{v[len(v)/2], v[0], v[len(v)-1]}
}

// summarize puts the rounds together, in the order of the measurements.
func summarize(results []result, peers []string) (rows []summary) {
	var cells []string
	for _, r := range results {
		if !slices.Contains(cells, r.cell) {
			cells = append(cells, r.cell)
		}
	}
	for _, c := range cells {
		for _, p := range peers {
			var cpu, rate, rss []float64
			var all histogram
			for i := range results {
				if r := &results[i]; r.cell == c && r.peer == p {
					cpu, rate, rss = append(cpu, r.cpu), append(rate, r.rate), append(rss, float64(r.rss))
					all.merge(&r.latency)
				}
			}
			if len(cpu) == 0 {
				continue // it was left out
			}
			rows = append(rows, summary{
				ratio: ratioTo(results, c, p, peers[0]),
				cell:  c, peer: p, rate: spreadOf(rate).median, cpu: spreadOf(cpu), rss: spreadOf(rss).median,
				p50: all.quantile(0.5), p99: all.quantile(0.99), p9s: all.quantile(0.999),
			})
		}
	}
	return rows
}

// ratioTo returns the median of a peer's CPU time by that of another in the same round.
func ratioTo(results []result, cell, peer, first string) float64 {
	rounds := make(map[int]float64) // the first's
	var ratios []float64
	for pass := range 2 {
		for i := range results {
			switch r := &results[i]; {
			case r.cell != cell:
			case pass == 0 && r.peer == first:
				rounds[r.round] = r.cpu
			case pass == 1 && r.peer == peer && rounds[r.round] > 0:
				ratios = append(ratios, r.cpu/rounds[r.round])
			}
		}
	}
	if len(ratios) == 0 {
		return 0
	}
	return spreadOf(ratios).median
}

// report prints the tables, and writes the files if there is a directory for them.
func (o *options) report(results []result, idle []idleCost) error {
	rows := summarize(results, o.peers)
	printCells(os.Stdout, rows)
	if len(idle) > 0 {
		printIdle(os.Stdout, idle, o.idlers)
	}
	if o.out == "" {
		return nil
	}
	if err := writeCSV(filepath.Join(o.out, "echo.csv"), rows, idle); err != nil {
		return err
	}
	return plot(filepath.Join(o.out, "echo.svg"), rows)
}

// printCells prints a table for each cell. The first peer is what the others are compared with, in
// the same round each.
func printCells(w io.Writer, rows []summary) {
	for _, g := range group(rows) {
		t := table{{"server", "messages/s", "CPU s per million", "first = 1", "p50", "p99", "p99.9", "memory"}}
		for _, r := range g {
			t = append(t, []string{
				r.peer, fmt.Sprintf("%.0f", r.rate),
				fmt.Sprintf("%.2f (%.2f–%.2f)", r.cpu.median, r.cpu.least, r.cpu.most),
				fmt.Sprintf("%.2f", r.ratio),
				short(r.p50).String(), short(r.p99).String(), short(r.p9s).String(),
				fmt.Sprintf("%.0f MiB", r.rss/(1<<20)),
			})
		}
		fmt.Fprintf(w, "\n%s\n\n", g[0].cell)
		t.print(w)
	}
}

// A table is printed as Markdown that is readable as it is. Its first line is the head.
type table [][]string

func (t table) print(w io.Writer) {
	widths := make([]int, len(t[0]))
	for _, line := range t {
		for i, s := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(s))
		}
	}
	for n, line := range t {
		for i, s := range line {
			fmt.Fprintf(w, "| %s%s ", s, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(s)))
		}
		fmt.Fprintln(w, "|")
		if n == 0 {
			for _, width := range widths {
				fmt.Fprint(w, "|", strings.Repeat("-", width+2))
			}
			fmt.Fprintln(w, "|")
		}
	}
}

// short rounds a time to three digits.
func short(d time.Duration) time.Duration {
	for unit := time.Second; unit > 1; unit /= 10 {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}

func printIdle(w io.Writer, costs []idleCost, n int) {
	t := table{{"server", "bytes of user memory for each", "CPU of all, % of a core"}}
	for _, c := range costs {
		t = append(t, []string{c.peer, fmt.Sprintf("%.0f", c.memory), fmt.Sprintf("%.2f", c.cpu)})
	}
	fmt.Fprintf(w, "\n%d idle connections\n\n", n)
	t.print(w)
}

func writeCSV(name string, rows []summary, idle []idleCost) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
	_ = w.Write([]string{"cell", "server", "messages_per_second", "cpu_seconds_per_million", "least", "most",
		"p50_us", "p99_us", "p99.9_us", "rss_bytes"})
	micro := func(d time.Duration) string { return number(float64(d) / 1e3) }
	for _, r := range rows {
		_ = w.Write([]string{r.cell, r.peer, number(r.rate), number(r.cpu.median), number(r.cpu.least),
			number(r.cpu.most), micro(r.p50), micro(r.p99), micro(r.p9s), strconv.Itoa(int(r.rss))})
	}
	_ = w.Write([]string{"idle connections", "server", "bytes_per_connection", "cpu_percent"})
	for _, c := range idle {
		_ = w.Write([]string{"", c.peer, number(c.memory), number(c.cpu)})
	}
	w.Flush()
	return cmp.Or(w.Error(), os.WriteFile(name, []byte(b.String()), 0o644))
}
