//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// A row is what one measurement gave.
type row struct {
	Server       string
	Conns        int
	Pairs        int // of processes
	Opening      time.Duration
	User, Kernel int           // bytes for each connection; the kernel's are of both ends
	CPU          time.Duration // of a heartbeat
	Talkers      time.Duration // the 99th percentile of their waits
	Late         time.Duration // of evictions: the 99th percentile
	Sleeper      time.Duration // how late a thread that only sleeps ran: the 99th percentile
}

// readRows reads what appendTo wrote: a line of JSON for each row.
func readRows(file string) (rows []row, err error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for in := json.NewDecoder(f); ; {
		var r row
		if err := in.Decode(&r); err == io.EOF {
			return rows, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		rows = append(rows, r)
	}
}

func (r *row) appendTo(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(r), f.Close())
}

// A column is a cost of a measurement, in a unit.
type column struct {
	name  string
	value func(r *row) float64
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

var (
	user   = column{"user memory, B", func(r *row) float64 { return float64(r.User) }}
	beat   = column{"CPU of a heartbeat, µs", func(r *row) float64 { return milliseconds(r.CPU) * 1000 }}
	late   = column{"evictions late p99, ms", func(r *row) float64 { return milliseconds(r.Late) }}
	others = []column{
		{"kernel, both ends, B", func(r *row) float64 { return float64(r.Kernel) }},
		{"talkers p99, ms", func(r *row) float64 { return milliseconds(r.Talkers) }},
		{"sleeper late p99, ms", func(r *row) float64 { return milliseconds(r.Sleeper) }},
		{"opened in, s", func(r *row) float64 { return r.Opening.Seconds() }},
	}
	columns = append([]column{user, beat, late}, others...)
)

// A line is what several rounds of one measurement gave: a spread for each column.
type line struct {
	row     // of the first round
	spreads map[string]measure.Spread
}

// lines sums up rounds, in the order of the servers.
func lines(rows []row) (all []line) {
	type key struct {
		server string
		conns  int
	}
	values := make(map[key]map[string][]float64)
	for _, r := range rows {
		k := key{r.Server, r.Conns}
		if values[k] == nil {
			values[k] = make(map[string][]float64)
			all = append(all, line{r, make(map[string]measure.Spread)})
		}
		for _, c := range columns {
			values[k][c.name] = append(values[k][c.name], c.value(&r))
		}
	}
	for _, l := range all {
		for name, v := range values[key{l.Server, l.Conns}] {
			l.spreads[name] = measure.SpreadOf(v)
		}
	}
	slices.SortStableFunc(all, func(a, b line) int {
		return cmp.Or(cmp.Compare(order(a.Server), order(b.Server)), cmp.Compare(a.Conns, b.Conns))
	})
	return all
}

// thousands writes a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// show prints a table, and brings the document and its chart up to date if it has their directory.
func show(rows []row, docs string) error {
	t, all := measure.Table{{"server, connections", "processes"}}, lines(rows)
	for _, c := range columns {
		t[0] = append(t[0], c.name)
	}
	for _, l := range all {
		cells := []string{l.Server + ", " + thousands(l.Conns), strconv.Itoa(l.Pairs)}
		for _, c := range columns {
			cells = append(cells, l.spreads[c.name].String())
		}
		t = append(t, cells)
	}
	if docs != "" {
		if err := os.WriteFile(filepath.Join(docs, "scaling.svg"), chart(all), 0o644); err != nil {
			return err
		}
	}
	return t.Show("million", docs)
}
