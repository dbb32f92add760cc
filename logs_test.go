package loopwheel_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// loggingDirs are the packages whose log lines docs/operations.md lists.
var loggingDirs = []string{"loop", "handler", "timing"}

// A logLine is what docs/operations.md says of a line, and what the source writes.
type logLine struct{ level, keys string }

// The log lines that docs/operations.md lists are those that there are, with their levels and keys.
// A key may be missing in a line that has nothing to say for it.
func TestLogLines(t *testing.T) {
	written := make(map[string]logLine)
	for _, f := range sources(t) {
		if !f.isTest() && slices.ContainsFunc(loggingDirs, func(d string) bool { return f.dir() == d || strings.HasPrefix(f.dir(), d+"/") }) {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					findLogLines(t, fn, written)
				}
			}
		}
	}
	listed := listedLogLines(t)
	for message, line := range written {
		if got, ok := listed[message]; !ok {
			t.Errorf("docs/operations.md does not list %q, %v", message, line)
		} else if got != line {
			t.Errorf("%q: docs/operations.md says %v, the source has %v", message, got, line)
		}
	}
	for message := range listed {
		if _, ok := written[message]; !ok {
			t.Errorf("docs/operations.md lists %q, which nobody writes", message)
		}
	}
	if len(written) < 15 {
		t.Errorf("only %d lines were found: does this test still see them?", len(written))
	}
}

var (
	logKeys   = []string{"Str", "Int", "Uint64", "Dur", "Stringer", "Bytes", "Bool"}
	logLevels = map[string]string{"Error": "error", "Warn": "warn", "Info": "info", "Debug": "debug", "WithLevel": "yours"}
)

// findLogLines notes the messages of a function, with the keys and the level of their events. An
// event that is a variable has those of the whole function. A message that is a parameter is what
// callers give: the literals in calls of that function count as written.
func findLogLines(t *testing.T, fn *ast.FuncDecl, written map[string]logLine) {
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch sel.Sel.Name {
		case "Msgf":
			t.Errorf("%s: a message that is put together has no stable name", fset.Position(call.Pos()))
		case "Msg":
			line := eventOf(sel.X)
			if line.level == "" {
				line = eventOf(fn)
			}
			for _, text := range messagesOf(t, fn, call.Args[0]) {
				written[text] = line
			}
		}
		return true
	})
}

// eventOf returns the keys and the level of all events in a piece of code.
func eventOf(within ast.Node) (line logLine) {
	var keys []string
	ast.Inspect(within, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch name := sel.Sel.Name; {
		case name == "Err" && len(call.Args) == 1:
			keys = append(keys, "error")
		case name == "Log" && len(call.Args) == 0:
			keys = append(keys, "conn", "remote")
		case logLevels[name] != "" && isLogger(sel.X):
			line.level = logLevels[name]
		case slices.Contains(logKeys, name) && len(call.Args) == 2:
			if key, ok := literal(call.Args[0]); ok {
				keys = append(keys, key)
			}
		}
		return true
	})
	slices.Sort(keys)
	line.keys = strings.Join(slices.Compact(keys), " ")
	return line
}

// messagesOf returns what an argument of Msg may be.
func messagesOf(t *testing.T, fn *ast.FuncDecl, arg ast.Expr) []string {
	if text, ok := literal(arg); ok {
		return []string{text}
	}
	if id, ok := arg.(*ast.Ident); ok {
		return argumentsFor(t, fn, id.Name)
	}
	t.Errorf("%s: the message is no literal", fset.Position(arg.Pos()))
	return nil
}

// isLogger reports whether a method's receiver looks like a logger: x.Logger, x.log, x.Log().
func isLogger(x ast.Expr) bool {
	if call, ok := x.(*ast.CallExpr); ok {
		x = call.Fun
	}
	sel, ok := x.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(strings.ToLower(sel.Sel.Name), "log")
}

// argumentsFor returns the literals that are given for a parameter of fn, anywhere.
func argumentsFor(t *testing.T, fn *ast.FuncDecl, name string) (texts []string) {
	place, at := 0, -1
	for _, p := range fn.Type.Params.List {
		for _, id := range p.Names {
			if id.Name == name {
				at = place
			}
			place++
		}
	}
	for _, f := range sources(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > at && at >= 0 {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == fn.Name.Name {
					if text, ok := literal(call.Args[at]); ok {
						texts = append(texts, text)
					}
				}
			}
			return true
		})
	}
	if len(texts) == 0 {
		t.Errorf("%s: nobody gives a literal for %s", fset.Position(fn.Pos()), name)
	}
	return texts
}

func literal(x ast.Expr) (string, bool) {
	lit, ok := x.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// listedLogLines reads the tables of docs/operations.md whose first column is a message.
func listedLogLines(t *testing.T) map[string]logLine {
	t.Helper()
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, logs, _ := strings.Cut(string(text), "\n## Logs\n")
	listed := make(map[string]logLine)
	for _, m := range regexp.MustCompile("(?m)^\\| ([^|`]+) \\| ([a-z]+) \\|([^|]*)\\|").FindAllStringSubmatch(logs, -1) {
		if m[2] == "level" {
			continue
		}
		keys := strings.FieldsFunc(m[3], func(r rune) bool { return r == ' ' || r == ',' || r == '`' })
		slices.Sort(keys)
		listed[m[1]] = logLine{m[2], strings.Join(keys, " ")}
	}
	return listed
}

// String is a row of the table.
func (l logLine) String() string {
	return fmt.Sprintf("| %s | `%s` |", l.level, strings.ReplaceAll(l.keys, " ", "`, `"))
}
