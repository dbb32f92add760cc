package repotest

import (
	"os"
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
		t.Errorf("docs/operations.md lists fields that have no limit: %v", listed)
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
			t.Errorf("docs/operations.md lists %s, which does not exist, or twice", m[1])
		}
		delete(there, m[1])
	}
	for n := range there {
		t.Errorf("docs/operations.md does not list %s", n)
	}
}

// Links between the documents lead to a file, and to a heading in it.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	links := 0
	for _, name := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(prose(t, name), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			to := name
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(name), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if m[2] != "" && !slices.Contains(anchors(t, to), m[2]) {
				t.Errorf("%s: %s has no heading for %s", name, to, m[2])
			}
		}
	}
	if links == 0 {
		t.Error("no document has a link")
	}
}

// anchors returns the anchors that GitHub makes of a document's headings.
func anchors(t *testing.T, name string) (found []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose(t, name), -1) {
		words := regexp.MustCompile(`[^\pL\pN_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found = append(found, "#"+strings.ReplaceAll(words, " ", "-"))
	}
	return found
}
