package main

import (
	"fmt"
	"io"
	"strings"
)

// besideRows are the measures of the wheel beside the 4-ary heap, as docs/performance.md shows
// them.
var besideRows = []struct{ measure, label, unit string }{
	{"schedule+stop, n pending", "schedule and stop, same slot", "ns"},
	{"schedule+stop spread, n pending", "schedule and stop, spread", "ns"},
	{"schedule+stop spread, called directly", "the same, called directly", "ns"},
	{"reset a random one of n", "reset a random one", "ns"},
	{"n due at once", "all due at once, each", "ns"},
	{"n spread over 1 s", "all due within 1 s, added and called", "s"},
	{"worst step of it", "the worst step of that", "ms"},
	{memoryJob, "memory of each", "bytes"},
	{"after churn", "memory after each was moved three times", "bytes"},
	{"handle of it", "the handle, which the caller keeps", "bytes"},
	{"heartbeats, eager reset", "heartbeats of 100,000 connections", "ms"},
}

const besideKinds = "timing.Wheel|4-ary heap"

// beside has the wheel and the heap take turns, with as many timers as sizes say, and writes a
// table in Markdown.
func beside(out io.Writer, sizes []int, rounds int) {
	all := make([]*results, len(sizes))
	for s, n := range sizes {
		all[s] = newResults()
		for round := range rounds {
			for _, j := range jobs {
				if besideJob(j, s == 0) {
					runJob(all[s], j, besideKinds, n, fmt.Sprintf("%d timers, round %d/%d, %s", n, round+1, rounds, j.names[0]))
				}
			}
		}
	}
	fmt.Fprintln(out, "\n| | pending | timing.Wheel | 4-ary heap | ratio |\n|---|---|---|---|---|")
	for _, row := range besideRows {
		for s, n := range sizes {
			if t := all[s].table(row.measure); t != nil && len(t.rows) >= 2 {
				printBeside(out, row.label+", "+row.unit, n, t)
			}
		}
	}
}

// besideJob reports whether a job is in the table; that of heartbeats, whose number is fixed, once.
func besideJob(j job, first bool) bool {
	for _, row := range besideRows {
		if row.measure == j.names[0] {
			return first || !strings.HasPrefix(row.measure, "heartbeats")
		}
	}
	return false
}

func printBeside(out io.Writer, label string, n int, t *table) {
	cell := func(r *row) string {
		median, least, most := r.spread()
		if short(least) == short(most) {
			return short(median)
		}
		return fmt.Sprintf("%s (%s–%s)", short(median), short(least), short(most))
	}
	a, _, _ := t.rows[0].spread()
	other := t.rows[len(t.rows)-1]
	b, _, _ := other.spread()
	fmt.Fprintf(out, "| %s | %s | %s | %s | %.2f |\n", label, thousands(n), cell(t.rows[0]), cell(other), a/b)
}

// thousands writes a number of up to a billion with commas.
func thousands(n int) string {
	switch {
	case n >= 1_000_000:
		return fmt.Sprintf("%d,%03d,%03d", n/1_000_000, n/1000%1000, n%1000)
	case n >= 1000:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return fmt.Sprint(n)
}
