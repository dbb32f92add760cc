package repotest

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/loopwheel/loopwheel/internal/testkit"
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

// The table of limits in docs/limits.md has each number and duration of a Server. Where it has
// a number, that is what Start puts in the place of zero; where it has words, that is zero, or what
// depends on the machine.
func TestLimitsAreListed(t *testing.T) {
	listed := make(map[string]string)
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z0-9.]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(section(t, "docs/limits.md", "Limits of the server"), -1) {
		listed[m[1]] = m[2]
	}
	srv := &loop.Server{}
	ctx, stop := context.WithCancel(t.Context())
	if err := srv.Start(ctx); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := srv.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, v := range testkit.Numbers(srv) {
		number, isNumber := limit(listed[name])
		switch got := v.Int(); {
		case strings.HasPrefix(name, "TCP.") || strings.HasPrefix(name, "Engine"): // no limits
		case listed[name] == "":
			t.Errorf("docs/limits.md does not list Server.%s", name)
		case isNumber && got != number:
			t.Errorf("docs/limits.md says that Server.%s is %s by default, the code says %d", name, listed[name], got)
		case !isNumber && got != 0 && name != "NumLoops" && name != "Limits.MaxConns" && name != "Limits.MaxBuffered":
			t.Errorf("docs/limits.md says that Server.%s is %q by default, the code says %d", name, listed[name], got)
		}
		delete(listed, name)
	}
	delete(listed, "Listener.MaxConns")
	if len(listed) > 0 {
		t.Errorf("docs/limits.md has limits that are none: %v", listed)
	}
}

// limit reads what the table has: 65,536, 1 MiB or 30 s. ok is false for words.
func limit(text string) (n int64, ok bool) {
	digits, unit, _ := strings.Cut(strings.ReplaceAll(text, ",", ""), " ")
	n, err := strconv.ParseInt(digits, 10, 64)
	units := map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ms": int64(time.Millisecond), "s": int64(time.Second)}
	return n * units[unit], err == nil && units[unit] > 0
}

// The table of metrics in docs/metrics.md is complete.
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
	table := section(t, "docs/metrics.md", "Metrics and the live page")
	for _, m := range regexp.MustCompile("`(loopwheel_[a-z_.]+)`").FindAllStringSubmatch(table, -1) {
		if !there[m[1]] {
			t.Errorf("docs/metrics.md lists %s, which does not exist, or twice", m[1])
		}
		delete(there, m[1])
	}
	for n := range there {
		t.Errorf("docs/metrics.md does not list %s", n)
	}
}

// The table of log messages in docs/metrics.md has those of the code, with their levels and
// keys.
func TestLogsAreListed(t *testing.T) {
	rows := make(map[string][]string)
	for _, m := range regexp.MustCompile("(?m)^\\| ([^|`]+) \\| ([a-z]+) \\|([^|]*)\\|").FindAllStringSubmatch(section(t, "docs/metrics.md", "Logs"), -1) {
		rows[m[1]] = append(regexp.MustCompile("[a-zA-Z]+").FindAllString(m[3], -1), m[2])
	}
	var code strings.Builder
	for _, dir := range []string{"loop", "handler", "timing"} {
		_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok {
					code.WriteString(l.Value)
				}
				if call, ok := n.(*ast.CallExpr); ok {
					checkLog(t, rows, path, call)
				}
				return true
			})
			return nil
		})
	}
	for text := range rows {
		if !strings.Contains(code.String(), `"`+text+`"`) {
			t.Errorf("docs/metrics.md lists %q, which nothing logs", text)
		}
	}
}

// checkLog checks a call like log.Warn().Err(err).Int("n", 1).Msg("text") against the table. Levels
// that the program chooses, as handler.Log's, are not in it.
func checkLog(t *testing.T, rows map[string][]string, path string, call *ast.CallExpr) {
	method, arg := methodCall(call)
	if method == "warn" || method == "refuseInput" { // of a Conn, with an error and the text
		if l, ok := call.Args[1].(*ast.BasicLit); ok && rows[strings.Trim(l.Value, `"`)] == nil {
			t.Errorf("%s warns %s, want it in docs/metrics.md", path, l.Value)
		}
	}
	if method != "Msg" || arg == "" {
		return
	}
	row, listed := rows[arg]
	for next := call; ; {
		sel, _ := next.Fun.(*ast.SelectorExpr)
		if sel == nil {
			return
		}
		if next, _ = sel.X.(*ast.CallExpr); next == nil {
			return
		}
		switch method, key := methodCall(next); method {
		case "WithLevel", "Log", "":
			return
		case "Err":
			key = "error"
			fallthrough
		default:
			if key == "" {
				key = strings.ToLower(method) // the level
			}
			if !listed || !slices.Contains(row, key) {
				t.Errorf("%s logs %q with %s, want it in docs/metrics.md, which has %v", path, arg, key, row)
			}
		}
	}
}

// methodCall returns the method that is called, and its first argument if that is a text.
func methodCall(call *ast.CallExpr) (method, arg string) {
	if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
		method = sel.Sel.Name
	}
	if len(call.Args) > 0 {
		if l, ok := call.Args[0].(*ast.BasicLit); ok {
			arg, _ = strconv.Unquote(l.Value)
		}
	}
	return method, arg
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

// A fence has a line of its own, with the language and the name of a file at most: what follows it
// is not shown. No word or pair of words of the documents stands twice.
func TestFencesAndDoubledWords(t *testing.T) {
	fence, isWord := regexp.MustCompile("^ *```([a-z]*|[a-z]+ [a-z_.]+)\n$"), regexp.MustCompile("^[A-Za-z]{2}")
	for _, name := range documents(t) {
		for line := range strings.Lines(read(t, name)) {
			if strings.Contains(line, "```") && !fence.MatchString(line) {
				t.Errorf("%s: got the fence %q, want it on a line of its own", name, line)
			}
		}
		words := strings.Fields(prose(t, name))
		for i := 3; i < len(words); i++ {
			last := strings.TrimRight(words[i], ".,:;)")
			one := last == words[i-1]
			two := last == words[i-2] && words[i-1] == words[i-3]
			if (one || two) && isWord.MatchString(last) && isWord.MatchString(words[i-1]) {
				t.Errorf("%s: got %q, want no word twice", name, words[i-3:i+1])
			}
		}
	}
}

// unclear are phrases that hide who does what.
var unclear = regexp.MustCompile(`(?i)\b(is|are|was|were|been) told\b|\bwho dials\b|\bwhat waits\b|\bas ever\b|\bof one's own\b|\bhas f (called|run)\b|\bwhoever\b|\bsees to it\b`)

// Comments and documents name the actor, tests and demos included.
func TestPlainEnglish(t *testing.T) {
	comment := regexp.MustCompile(`(?m)//.*$`)
	for _, name := range append(documents(t), glob(t, "*.go", "*/*.go", "*/*/*.go", "*/*/*/*.go", "*/*/*/*/*.go")...) {
		found := []string{prose(t, name)}
		if strings.HasSuffix(name, ".go") {
			found = comment.FindAllString(read(t, name), -1)
		}
		for _, text := range found {
			if got := unclear.FindString(text); got != "" {
				t.Errorf("%s: got %q, want an active verb and its subject", name, got)
			}
		}
	}
}
