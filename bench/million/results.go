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

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

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

var columns = []string{"server", "connections", "opened in", "user memory", "kernel, both ends", "CPU of a heartbeat",
	"talkers p99", "evictions late p99", "sleeper late p99", "ended in"}

func (r *row) cells() []string {
	server := r.Server
	if r.Burst {
		server += ", due at once"
	}
	return []string{server, thousands(r.Conns), measure.Short(r.Opening).String(), thousands(r.User) + " B", thousands(r.Kernel) + " B",
		measure.Short(r.CPU).String(), measure.Short(r.P99).String(),
		measure.Short(r.Late).String(), measure.Short(r.Sleeper).String(), measure.Short(r.Closing).String()}
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
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(order(a.Server), order(b.Server)), cmp.Compare(a.Conns, b.Conns))
	})
	t := measure.Table{columns}
	for _, r := range rows {
		t = append(t, r.cells())
	}
	if docs != "" {
		if err := os.WriteFile(filepath.Join(docs, "scaling.svg"), chart(rows), 0o644); err != nil {
			return err
		}
	}
	return t.Show("million", docs)
}
