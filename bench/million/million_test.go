//go:build linux

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

func someRows() []row {
	return []row{
		{Server: "net", Conns: 10_000, User: 4000, CPU: 30 * time.Microsecond, Late: 3 * time.Millisecond},
		{Server: "loopwheel", Conns: 100_000, User: 1500, CPU: 20 * time.Microsecond, Late: 2 * time.Millisecond},
		{Server: "loopwheel", Conns: 10_000, User: 1400, CPU: 21 * time.Microsecond, Late: time.Millisecond},
		{Server: "loopwheel", Conns: 10_000, User: 1600, CPU: 23 * time.Microsecond, Late: 2 * time.Millisecond},
	}
}

func TestRowsAreReadBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rows.json")
	want := someRows()
	for _, r := range want {
		if err := r.appendTo(file); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readRows(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
}

// Rounds of a measurement become one line, in the order of the servers.
func TestLines(t *testing.T) {
	want := []struct {
		server string
		conns  int
		user   measure.Spread
	}{
		{"loopwheel", 10_000, measure.Spread{Median: 1600, Least: 1400, Most: 1600}},
		{"loopwheel", 100_000, measure.Spread{Median: 1500, Least: 1500, Most: 1500}},
		{"net", 10_000, measure.Spread{Median: 4000, Least: 4000, Most: 4000}},
	}
	got := lines(someRows())
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	for i, w := range want {
		if g := got[i]; g.Server != w.server || g.Conns != w.conns || g.spreads[user.name] != w.user {
			t.Errorf("line %d: %s, %d, %v, want %v", i, g.Server, g.Conns, g.spreads[user.name], w)
		}
	}
}

// A chart is well-formed, has a point for each line, and all points lie within their panels.
func TestChart(t *testing.T) {
	svg := chart(lines(someRows()))
	circles := 0
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			circles++
			for _, a := range e.Attr {
				if (a.Name.Local == "cx" || a.Name.Local == "cy") && strings.HasPrefix(a.Value, "-") {
					t.Errorf("a point is outside: %s=%s", a.Name.Local, a.Value)
				}
			}
		}
	}
	if want := 2 + 3*len(panels); circles != want { // 2 in the legend
		t.Errorf("%d circles, want %d", circles, want)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
