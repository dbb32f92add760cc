package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// updateDocs brings the tables of performance.md to what runs with -out have measured. Runs may
// have measured different cells.
func updateDocs(dir string, files []string) error {
	var rows []summary
	for _, name := range files {
		r, _, err := readCSV(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		rows = append(rows, r...)
	}
	if len(rows) == 0 {
		return fmt.Errorf("no rows: want the echo.csv files that -out wrote")
	}
	page := filepath.Join(dir, "performance.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	cpu := func(r summary) string {
		return fmt.Sprintf("%.2f (%.2f–%.2f)", r.cpu.median, r.cpu.least, r.cpu.most)
	}
	p99 := func(r summary) string { return short(r.p99).String() }
	for name, cell := range map[string]func(summary) string{"echo CPU": cpu, "echo p99": p99} {
		if text, err = replaceTable(text, name, peersTable(rows, cell)); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	return os.WriteFile(page, text, 0o644)
}

// peersTable has a line for each cell, and a column for each peer.
func peersTable(rows []summary, cell func(summary) string) []byte {
	var peers []string
	for _, r := range rows {
		if !slices.Contains(peers, r.peer) {
			peers = append(peers, r.peer)
		}
	}
	var b bytes.Buffer
	b.WriteString("| |")
	for _, p := range peers {
		fmt.Fprintf(&b, " %s |", p)
	}
	b.WriteString("\n|---|" + string(bytes.Repeat([]byte("---|"), len(peers))) + "\n")
	for _, g := range group(rows) {
		fmt.Fprintf(&b, "| %s |", g[0].cell)
		for _, p := range peers {
			at := slices.IndexFunc(g, func(r summary) bool { return r.peer == p })
			if at < 0 {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(&b, " %s |", cell(g[at]))
		}
		b.WriteString("\n")
	}
	return b.Bytes()
}

// replaceTable replaces what stands between the two comments that name a table.
func replaceTable(text []byte, name string, table []byte) ([]byte, error) {
	begin, end := []byte("<!-- "+name+" -->\n"), []byte("<!-- end of "+name+" -->")
	from, to := bytes.Index(text, begin), bytes.Index(text, end)
	if from < 0 || to < from {
		return nil, fmt.Errorf("there is no %q before %q", begin, end)
	}
	return slices.Concat(text[:from+len(begin)], []byte("\n"), table, []byte("\n"), text[to:]), nil
}

// readCSV is the reverse of writeCSV.
func readCSV(name string) (rows []summary, idle []idleCost, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	in := csv.NewReader(f)
	in.FieldsPerRecord = -1
	records, err := in.ReadAll()
	if err != nil {
		return nil, nil, err
	}
	for _, rec := range records {
		v := make([]float64, len(rec))
		for i, s := range rec[min(2, len(rec)):] {
			if v[i], err = strconv.ParseFloat(s, 64); err != nil {
				break
			}
		}
		switch micro := func(i int) time.Duration { return time.Duration(v[i] * 1e3) }; {
		case err != nil: // a head
		case len(rec) == 10:
			rows = append(rows, summary{cell: rec[0], peer: rec[1], rate: v[0], cpu: spread{v[1], v[2], v[3]},
				p50: micro(4), p99: micro(5), p9s: micro(6), rss: v[7]})
		case len(rec) == 4:
			idle = append(idle, idleCost{peer: rec[1], memory: v[0], cpu: v[1]})
		}
	}
	return rows, idle, nil
}
