//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

// The tables of a job.
const (
	tableCPU    = "CPU"        // seconds per million messages
	tableP99    = "p99"        // milliseconds
	tableRate   = "messages/s" //
	tableMemory = "memory"     // KiB for each idle connection, in user space
)

// A record is what one round gave for a place in a table.
type record struct {
	Job, Table, Row, Peer string
	Value                 float64
}

func (o *options) write(name string) error {
	b, err := json.Marshal(o.records)
	if err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o644)
}

// A namedTable is one of a job: "echo CPU", say.
type namedTable struct {
	name string
	measure.Table
}

// tables makes tables of records, in their order. With a base the last column compares the first
// server with it.
func tables(records []record, base string) (all []namedTable) {
	var order []string
	results := make(map[string]*measure.Results)
	for _, r := range records {
		name := r.Job + " " + r.Table
		if results[name] == nil {
			results[name] = &measure.Results{Base: base}
			order = append(order, name)
		}
		results[name].Add(r.Row, r.Peer, r.Value)
	}
	for _, name := range order {
		all = append(all, namedTable{name, results[name].Table()})
	}
	return all
}

// updateDocs brings the tables of performance.md to what runs with -out have measured: those that
// stand between two comments with their name. Runs may have measured different loads.
func updateDocs(dir string, files []string) error {
	var records []record
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var rs []record
		if err := json.Unmarshal(b, &rs); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		records = append(records, rs...)
	}
	page := filepath.Join(dir, "performance.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	for _, t := range tables(records, "") {
		var b bytes.Buffer
		t.Print(&b)
		text = replaceTable(text, t.name, b.Bytes())
	}
	return os.WriteFile(page, text, 0o644)
}

// replaceTable replaces what stands between the two comments that name a table, if there are any.
func replaceTable(text []byte, name string, table []byte) []byte {
	begin, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- end of "+name+" -->")
	from, to := bytes.Index(text, begin), bytes.Index(text, end)
	if from < 0 || to < from {
		return text
	}
	return slices.Concat(text[:from+len(begin)], []byte("\n"), table, []byte("\n"), text[to:])
}
