package loopwheel_test

import (
	"fmt"
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/loopmetrics"
	"github.com/loopwheel/loopwheel/timing"
)

// What the documents say of names, defaults and files is held against the code here.

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// section returns what a document has below a heading, up to the next one of its kind.
func section(t *testing.T, name, heading string) string {
	t.Helper()
	_, found, ok := strings.Cut(read(t, name), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", name, heading)
	}
	found, _, _ = strings.Cut(found, "\n## ")
	return found
}

// The table of limits in docs/operations.md has each field of Server whose zero means something,
// with what it means.
func TestLimitsAreListed(t *testing.T) {
	listed := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z0-9]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(section(t, "docs/operations.md", "Limits of the server"), -1) {
		listed[m[1]] = m[2]
	}
	server := reflect.TypeFor[loop.Server]()
	for i := range server.NumField() {
		f := server.Field(i)
		def, ok := f.Tag.Lookup("default")
		zero, hasZero := f.Tag.Lookup("zero")
		switch {
		case !ok && !hasZero:
			continue
		case !ok:
			def = zero
		case f.Type == reflect.TypeFor[time.Duration]():
			def = regexp.MustCompile(`[a-z]+$`).ReplaceAllString(def, " $0")
		default:
			def = strings.ReplaceAll(def, "_", ",")
			if size, ok := map[string]string{"1,048,576": "1 MiB", "262,144": "256 KiB"}[def]; ok {
				def = size
			}
		}
		if listed[f.Name] != def {
			t.Errorf("docs/operations.md says %q of Server.%s, the code says %q", listed[f.Name], f.Name, def)
		}
		delete(listed, f.Name)
	}
	if len(listed) > 0 {
		t.Errorf("docs/operations.md has limits that are none: %v", listed)
	}
}

// The table of metrics in docs/operations.md is complete.
func TestMetricsAreListed(t *testing.T) {
	s := timing.NewScheduler(timing.SchedulerConfig{})
	defer s.Stop()
	there := make(map[string]bool)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	described := make(chan *prometheus.Desc, 100)
	loopmetrics.NewCollector(&loop.Server{}).Describe(described)
	loopmetrics.NewSchedulerCollector("x", s).Describe(described)
	close(described)
	for d := range described {
		n := name.FindStringSubmatch(d.String())[1]
		if strings.HasPrefix(n, "loopwheel_scheduler_") {
			n = "loopwheel_scheduler_..."
		}
		there[n] = true
	}
	table := section(t, "docs/operations.md", "Metrics and the live page")
	for _, m := range regexp.MustCompile("`(loopwheel_[a-z_.]+)`").FindAllStringSubmatch(table, -1) {
		if !there[m[1]] {
			t.Errorf("docs/operations.md lists %s, which there is not, or twice", m[1])
		}
		delete(there, m[1])
	}
	for n := range there {
		t.Errorf("docs/operations.md does not list %s", n)
	}
}

// The tables of files in docs/architecture.md and docs/wheel.md have each file, and no other.
func TestFilesAreListed(t *testing.T) {
	architecture := read(t, "docs/architecture.md")
	for dir, from := range map[string]string{
		"loop": "## The rooms of package loop", "loop/internal/gnetengine": "Package `loop/internal/gnetengine`:",
		"timing": "Package `timing`:", "codec": "Package `codec`:", "handler": "Package `handler`:",
	} {
		_, table, ok := strings.Cut(architecture, from)
		if !ok {
			t.Errorf("docs/architecture.md has no %q", from)
		}
		table, _, _ = strings.Cut(table, "\nPackage `")
		checkFiles(t, dir, table)
	}
	checkFiles(t, "timing", section(t, "docs/wheel.md", "Where it is in the code"))
}

// checkFiles compares the files of a package with those that a table has the names of, or patterns.
func checkFiles(t *testing.T, dir, table string) {
	t.Helper()
	var patterns []string
	for _, row := range regexp.MustCompile(`(?m)^\|([^|]*)\|`).FindAllStringSubmatch(table, -1) {
		for _, m := range regexp.MustCompile(`[a-z0-9_*]+\.go`).FindAllString(row[1], -1) {
			patterns = append(patterns, m)
			if found, err := filepath.Glob(filepath.Join(dir, m)); len(found) == 0 {
				t.Errorf("%s: a document has %s, which is not there, %v", dir, m, err)
			}
		}
	}
	for _, f := range sources(t) {
		base := path.Base(f.name)
		if f.dir() == dir && !f.isTest() && base != "doc.go" &&
			!slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, base); return ok }) {
			t.Errorf("%s is in no row of the table of files", f.name)
		}
	}
}

// The tests that docs/reliability.md gives for its faults are there.
func TestFaultsAreTested(t *testing.T) {
	there := make(map[string]bool)
	for _, f := range sources(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.isTest() {
				there[fn.Name.Name] = true
			}
		}
	}
	rows := 0
	for _, m := range regexp.MustCompile(`(?m)^\|[^|]*\|[^|]*\|([^|]*)\|[^|]*\|$`).FindAllStringSubmatch(section(t, "docs/reliability.md", "Faults"), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[1], -1) {
			rows++
			test, _, _ := strings.Cut(name[1], "/")
			if _, err := os.Stat(name[1]); err != nil && !there["TestFault"+test] && !strings.Contains(name[1], " ") {
				t.Errorf("docs/reliability.md: there is no test %s", name[1])
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d tests were found in docs/reliability.md: does this still see them?", rows)
	}
}

// The README of each example has all of its flags.
func TestFlagsAreListed(t *testing.T) {
	define := regexp.MustCompile(`^((Bool|Duration|Float64|Int|String)(Var)?|Func)$`)
	flags := 0
	for _, f := range sources(t) {
		if program := f.dir(); path.Dir(program) == "examples" && !f.isTest() {
			readme := read(t, program+"/README.md")
			ast.Inspect(f.ast, func(n ast.Node) bool {
				name := definedFlag(n, define)
				if name == "" {
					return true
				}
				flags++
				if !regexp.MustCompile(`[ \x60]-` + name + `\b`).MatchString(readme) {
					t.Errorf("%s/README.md does not tell of the flag -%s", program, name)
				}
				return true
			})
		}
	}
	if flags < 30 {
		t.Errorf("%d flags were found: does this still see them?", flags)
	}
}

// definedFlag returns the name of the flag that a call defines, or "".
func definedFlag(n ast.Node, define *regexp.Regexp) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x := fmt.Sprint(sel.X); x == "cli" && sel.Sel.Name == "LevelFlag" {
		return "log"
	} else if x != "fs" && x != "flag" || !define.MatchString(sel.Sel.Name) {
		return ""
	}
	for _, arg := range call.Args[:min(2, len(call.Args))] {
		if name, ok := literal(arg); ok {
			return name
		}
	}
	return ""
}
