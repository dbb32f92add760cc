package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
)

// results collects what was measured, in the order it came.
type results struct {
	tables []*table
}

// table is one measure of all contenders.
type table struct {
	name, unit string
	rows       []*row
}

type row struct {
	contender string
	values    []float64
}

func newResults() *results { return &results{} }

func (r *results) add(name, unit, contender string, v float64) {
	t := r.table(name)
	if t == nil {
		t = &table{name: name, unit: unit}
		r.tables = append(r.tables, t)
	}
	j := slices.IndexFunc(t.rows, func(w *row) bool { return w.contender == contender })
	if j < 0 {
		j = len(t.rows)
		t.rows = append(t.rows, &row{contender: contender})
	}
	t.rows[j].values = append(t.rows[j].values, v)
}

// table returns a measure's table, nil if there is none.
func (r *results) table(name string) *table {
	for _, t := range r.tables {
		if t.name == name {
			return t
		}
	}
	return nil
}

// spread returns the median, the least and the greatest value.
func (w *row) spread() (median, least, most float64) {
	v := slices.Sorted(slices.Values(w.values))
	mid := len(v) / 2
	median = v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	return median, v[0], v[len(v)-1]
}

// print writes the tables. A ratio is to the first row, which is ours: 3.0 is three times as much.
func (r *results) print(out io.Writer) {
	for _, t := range r.tables {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(out, "\n%s [%s]\n", t.name, t.unit)
		fmt.Fprintln(w, "contender\tmedian\tmin to max\tratio\t")
		base, _, _ := t.rows[0].spread()
		for _, row := range t.rows {
			median, least, most := row.spread()
			fmt.Fprintf(w, "%s\t%s\t%s to %s\t%s\t\n", row.contender, short(median), short(least), short(most), short(median/base))
		}
		w.Flush()
	}
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

// write puts timers.csv and the plots into a directory.
func (r *results) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "timers.csv"))
	if err != nil {
		return err
	}
	defer f.Close()
	w := csv.NewWriter(f)
	_ = w.Write([]string{"measure", "unit", "contender", "round", "value"})
	for _, t := range r.tables {
		for _, row := range t.rows {
			for i, v := range row.values {
				_ = w.Write([]string{t.name, t.unit, row.contender, strconv.Itoa(i + 1), strconv.FormatFloat(v, 'g', 6, 64)})
			}
		}
	}
	if w.Flush(); w.Error() != nil {
		return w.Error()
	}
	for _, t := range r.tables {
		if err := t.plot(dir); err != nil {
			return err
		}
	}
	return nil
}
