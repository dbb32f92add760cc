//go:build linux

package measure

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A process that does not answer is killed.
func TestStuck(t *testing.T) {
	before := patience
	t.Cleanup(func() { patience = before })
	p, err := Start("sh", exec.Command("sh", "-c", "echo ready; read line; echo $line; exec sleep 100"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.End()
	if answer, err := p.Ask("hello"); p.Addr != "ready" || answer != "hello" || err != nil || p.CPU() == 0 || p.Resident() == 0 {
		t.Errorf("%q, %q, %v, %v, %d", p.Addr, answer, err, p.CPU(), p.Resident())
	}
	patience = time.Millisecond
	if _, err := p.Ask("hello"); !errors.Is(err, ErrStuck) {
		t.Error(err)
	}
}

func TestResults(t *testing.T) {
	r := &Results{Base: "theirs"}
	for _, v := range []float64{3, 1, 2} {
		r.Add("speed", "ours", v)
		r.Add("speed", "theirs", 4)
	}
	r.Add("size", "ours", 0.25)
	var out strings.Builder
	r.table(r.Base).print(&out)
	want := `|       | ours             | theirs | ours / theirs |
|-------|------------------|--------|---------------|
| speed | 2.00 (1.00–3.00) | 4.00   | 0.50          |
| size  | 0.25             |        |               |
`
	if out.String() != want {
		t.Errorf("\n%s, want\n%s", out.String(), want)
	}
}

// What was measured replaces the table of its name in whichever page has it, again and again.
func TestShow(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	if err := os.WriteFile(page, []byte("Text.\n\n<!-- echo CPU -->\n\nold\n\n<!-- end of echo CPU -->\nMore.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := (table{{"", "net"}, {"a", "4"}}).replace("echo CPU", dir); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(page)
		want := "Text.\n\n<!-- echo CPU -->\n\n|   | net |\n|---|-----|\n| a | 4   |\n\n<!-- end of echo CPU -->\nMore.\n"
		if err != nil || string(after) != want {
			t.Fatalf("%v\n%s\nwant\n%s", err, after, want)
		}
	}
	// The table of the page chooses.
	measured := table{{"", "gnet", "net", "nbio"}, {"a", "1", "2", "3"}, {"b", "4", "5", "6"}, {"c", "7", "8", "9"}}
	text := "<!-- echo CPU -->\n\n| now | nbio | gnet |\n|---|---|---|\n| c | 0 | 0 |\n| a | 0 | 0 |\n\n<!-- end of echo CPU -->"
	if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := measured.replace("echo CPU", dir); err != nil {
		t.Fatal(err)
	}
	want := "\n| now | nbio | gnet |\n|-----|------|------|\n| c   | 9    | 7    |\n| a   | 3    | 1    |\n"
	if after, err := os.ReadFile(page); err != nil || !strings.Contains(string(after), want) {
		t.Errorf("%v\n%s\nwant\n%s", err, after, want)
	}
	for _, less := range []table{measured[:3], {{"", "gnet"}, {"a", "1"}, {"c", "7"}}} {
		if err := less.replace("echo CPU", dir); err == nil {
			t.Errorf("%q: a table without what the page has was taken", less)
		}
	}
	if err := (table{{"a"}}).replace("none", dir); err == nil {
		t.Error("a table that is nowhere was replaced")
	}
}

// A flag that is given counts for more than a preset.
func TestPreset(t *testing.T) {
	flags := flag.NewFlagSet("echo", flag.ContinueOnError)
	rounds, idlers := flags.Int("rounds", 5, ""), flags.Int("idlers", 9000, "")
	window := flags.Duration("for", time.Second, "")
	if err := flags.Parse([]string{"-rounds", "5"}); err != nil {
		t.Fatal(err)
	}
	Preset(flags, map[string]string{"rounds": "1", "idlers": "1000", "for": "300ms"})
	if *rounds != 5 {
		t.Errorf("%d rounds, want the 5 of the command line", *rounds)
	}
	if *idlers != 1000 {
		t.Errorf("%d idlers, want the preset 1000", *idlers)
	}
	if want := 300 * time.Millisecond; *window != want {
		t.Errorf("a window of %v, want the preset %v", *window, want)
	}
}

// Each round has everybody once, and each time somebody else first.
func TestTurns(t *testing.T) {
	var got strings.Builder
	for round, name := range Turns(3, []string{"a", "b"}) {
		fmt.Fprint(&got, round, name, " ")
	}
	if want := "0a 0b 1b 1a 2a 2b "; got.String() != want {
		t.Errorf("turns %q, want %q", got.String(), want)
	}
}
