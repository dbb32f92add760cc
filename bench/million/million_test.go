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
)

func someRows() []row {
	return []row{
		{Server: "net", Conns: 10_000, User: 4000, CPU: 30 * time.Microsecond, Late: 3 * time.Millisecond},
		{Server: "loopwheel", Conns: 100_000, User: 1500, CPU: 20 * time.Microsecond, Late: 2 * time.Millisecond},
		{Server: "loopwheel", Conns: 10_000, User: 1400, CPU: 21 * time.Microsecond, Late: time.Millisecond},
		{Server: "loopwheel", Conns: 10_000, User: 999_000, CPU: time.Hour, Burst: true},
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
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
}

// A chart is well-formed, has a point for each row but for bursts, and all points lie within their
// panels.
func TestChart(t *testing.T) {
	svg := chart(someRows())
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
			t.Errorf("%d: %q", n, got)
		}
	}
}
