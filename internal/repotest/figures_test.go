package repotest

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// table returns the cells of a Markdown table by the names of their rows and columns.
func table(t *testing.T, text string) map[string]map[string]string {
	t.Helper()
	var names []string
	rows := make(map[string]map[string]string)
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|-") || strings.HasPrefix(line, "| -") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if names == nil {
			names = cells
			continue
		}
		if len(cells) != len(names) {
			t.Fatalf("%q has %d cells, the head %d", line, len(cells), len(names))
		}
		row := make(map[string]string)
		for i, name := range names[1:] {
			row[name] = cells[i+1]
		}
		rows[cells[0]] = row
	}
	return rows
}

// between returns what a document has between two texts.
func between(t *testing.T, name, begin, end string) string {
	t.Helper()
	_, found, ok := strings.Cut(read(t, name), begin)
	found, _, closed := strings.Cut(found, end)
	if !ok || !closed {
		t.Fatalf("%s has nothing between %q and %q", name, begin, end)
	}
	return found
}

// Each figure of the table in README.md follows from the tables in docs/performance.md.
func TestReadmeFigures(t *testing.T) {
	got := table(t, between(t, "README.md", "\n## What it costs\n", "\ngnet is the default"))
	columns := map[string]string{"loopwheel on gnet": "EngineGnet", "on its own epoll": "EngineEpoll", "gnet": "gnet", "nbio": "nbio", "package net": "net"}
	rows := []struct{ name, table, of, format string }{
		{"100 connections, one message at a time", "echo CPU", "100 conns, 64 B, depth 1", ""},
		{"the same, p99 latency at 20,000 messages a second", "echo p99", "100 conns, 64 B, 20000 a second", "%.2f ms"},
		{"16 messages at a time", "echo CPU", "100 conns, 64 B, depth 16", ""},
		{"a new connection for each message", "echo CPU", "50 at a time, 64 B, a connection each", ""},
		{"memory of an idle connection", "echo memory", "idle after 64 B", "%.1f KB"},
	}
	if len(got) != len(rows) {
		t.Errorf("README.md has %d rows of figures, want %d", len(got), len(rows))
	}
	for _, r := range rows { // lower is better in all
		source := table(t, between(t, "docs/performance.md", "<!-- "+r.table+" -->", "<!-- end of "+r.table+" -->"))[r.of]
		number := func(column string) float64 {
			median, _, _ := strings.Cut(source[column], " ")
			v, err := strconv.ParseFloat(median, 64)
			if err != nil {
				t.Fatalf("docs/performance.md, %s, %s: %v", r.table, r.of, err)
			}
			return v
		}
		if len(got[r.name]) != len(columns) {
			t.Errorf("README.md, %s: %d figures, want %d", r.name, len(got[r.name]), len(columns))
		}
		if number("EngineEpoll") > number("EngineGnet") {
			t.Errorf("README.md says that EngineEpoll is at least as good in every row; %s: %v and %v", r.name, number("EngineEpoll"), number("EngineGnet"))
		}
		for name, column := range columns {
			want := fmt.Sprintf(r.format, number(column))
			if r.format == "" {
				want = fmt.Sprintf("%.2f", number(column)/number("gnet"))
			}
			if got := got[r.name][name]; got != want {
				t.Errorf("README.md, %s, %s: %q, want %q by docs/performance.md", r.name, name, got, want)
			}
		}
	}
}

// The Chinese README has the same figures.
func TestReadmesHaveTheSameFigures(t *testing.T) {
	figures := func(page string) []string {
		return regexp.MustCompile(`\| [0-9]+\.[0-9]+[ a-zA-Z]*`).FindAllString(read(t, page), -1)
	}
	got, want := figures("README.zh-CN.md"), figures("README.md")
	if len(want) != 25 || !slices.Equal(got, want) {
		t.Errorf("figures %q, want the 25 of README.md %q", got, want)
	}
}

// A document that has a million connections says in the same sentence by how many processes.
func TestMillionInProcesses(t *testing.T) {
	names, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	for _, name := range append(names, "README.md") {
		for _, sentence := range regexp.MustCompile(`[.:]\s|\n\n|\n[-|#]`).Split(prose(t, name), -1) {
			if !regexp.MustCompile(`million\s+(real\s+)?connections`).MatchString(sentence) {
				continue
			}
			if said++; !regexp.MustCompile(`\d+\s+(server\s+)?processes`).MatchString(sentence) {
				t.Errorf("%s does not say in how many processes: %q", name, strings.Join(strings.Fields(sentence), " "))
			}
		}
	}
	if said == 0 {
		t.Error("no document speaks of a million connections: does this still see them?")
	}
}

// The ratios in prose follow from the tables.
func TestComparisons(t *testing.T) {
	cell := func(page, name, row, column string) float64 {
		t.Helper()
		median, _, _ := strings.Cut(table(t, between(t, page, "<!-- "+name+" -->", "<!-- end of "+name+" -->"))[row][column], " ")
		v, err := strconv.ParseFloat(median, 64)
		if err != nil {
			t.Fatalf("%s, %s, %s, %s: %v", page, name, row, column, err)
		}
		return v
	}
	memory := func(column string) float64 {
		return cell("docs/performance.md", "echo memory", "idle after 64 B", column) - cell("docs/performance.md", "echo memory", "idle after 64 B", "gnet")
	}
	short := func(column string) float64 {
		const row = "50 at a time, 64 B, a connection each"
		return cell("docs/performance.md", "echo CPU", row, column) / cell("docs/performance.md", "echo CPU", row, "gnet")
	}
	peer := func(column string) float64 {
		const row = "one peer, one datagram"
		return cell("docs/performance.md", "UDP", row, column) / cell("docs/performance.md", "UDP", row, "gnet")
	}
	million := func(column, a, b string) float64 {
		return cell("docs/scaling.md", "million", a+", 100,000", column) / cell("docs/scaling.md", "million", b+", 100,000", column)
	}
	const beat, bytes, late = "CPU of a heartbeat, µs", "user memory, B", "evictions late p99, ms"
	const from, scaling = "docs/coming-from.md", "docs/scaling.md"
	for _, c := range []struct {
		page, text string // with the ratio in words at %s
		ratio      float64
	}{
		{from, "about %s KB more per idle connection", memory("EngineGnet")},
		{from, "EngineEpoll` takes %s KB more than gnet", memory("EngineEpoll")},
		{from, "%s times the CPU for short connections; ", short("EngineGnet")},
		{from, "%s times the CPU for short connections, ", short("EngineEpoll")},
		{from, "%s times the CPU for a lone UDP peer. ", peer("EngineGnet")},
		{from, "%s times for a lone UDP peer, ", peer("EngineEpoll")},
		{from, "%s times as much CPU per heartbeat as gnet with a timing wheel", million(beat, "loopwheel", "gnet-timingwheel")},
		{from, "or %s times as much as gnet with plain lists", million(beat, "loopwheel", "gnet-list")},
		{from, "and per heartbeat %s times as much as gnet with a timing wheel", million(beat, "loopwheel-epoll", "gnet-timingwheel")},
		{from, "or %s times as much as with plain lists", million(beat, "loopwheel-epoll", "gnet-list")},
		{scaling, "(*gnet-list*) takes %s of the CPU", million(beat, "gnet-list", "loopwheel")},
		{scaling, "of the CPU and %s of the memory; its lists", million(bytes, "gnet-list", "loopwheel")},
		{scaling, "so evictions are %s times as late", million(late, "gnet-list", "loopwheel")},
		{scaling, "`EngineEpoll` takes %s of the CPU", million(beat, "loopwheel-epoll", "loopwheel")},
		{scaling, "ticks of 10 ms) takes %s of the CPU", million(beat, "gnet-timingwheel", "loopwheel")},
		{scaling, "of the memory; evictions are %s times as late", million(late, "gnet-timingwheel", "loopwheel")},
		{scaling, "of the CPU and %s of the memory. Package net", million(bytes, "loopwheel-epoll", "loopwheel")},
		{scaling, "of the CPU and %s of the memory; evictions", million(bytes, "gnet-timingwheel", "loopwheel")},
		{scaling, "Package net takes %s of the CPU", million(beat, "net", "loopwheel")},
		{scaling, "of the CPU and %s times the memory (here", million(bytes, "net", "loopwheel")},
	} {
		text := strings.Join(strings.Fields(prose(t, c.page)), " ")
		found := regexp.MustCompile(strings.Replace(regexp.QuoteMeta(c.text), "%s", `([a-z0-9.]+)`, 1)).FindStringSubmatch(text)
		if found == nil {
			t.Errorf("%s does not say %q", c.page, c.text)
			continue
		}
		said, ok := map[string]float64{"half": .5, "twice": 2, "two": 2, "three": 3, "four": 4, "five": 5, "nine": 9, "ten": 10}[found[1]]
		if !ok {
			if said, _ = strconv.ParseFloat(found[1], 64); said == 0 {
				t.Errorf("%s: %q is no number", c.page, found[0])
			}
		}
		if c.ratio < said*.93-.03 || c.ratio > said*1.07+.03 {
			t.Errorf("%s says %q, which is %.2f by the tables", c.page, found[0], c.ratio)
		}
	}
}
