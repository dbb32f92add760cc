package repotest

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/loop"
)

// What package loop shows stays small enough to be read: types, functions, methods, fields, errors
// and constants that are exported, as go doc -all lists them.
func TestNamesOfPackageLoop(t *testing.T) {
	const maxNames, maxFields = 251, 19
	names, err := filepath.Glob("loop/*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || name == "loop/inspect.go" {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(set, files, modulePath+"/loop")
	if err != nil {
		t.Fatal(err)
	}
	n := len(p.Funcs) + values(p.Consts) + values(p.Vars)
	for _, typ := range p.Types {
		n += 1 + len(typ.Funcs) + len(typ.Methods) + values(typ.Consts) + values(typ.Vars)
		ast.Inspect(typ.Decl, func(node ast.Node) bool {
			if f, ok := node.(*ast.Field); ok {
				for _, name := range f.Names {
					if name.IsExported() {
						n++
					}
				}
			}
			_, isFunc := node.(*ast.FuncType)
			return !isFunc
		})
	}
	if n > maxNames || n < 100 {
		t.Errorf("package loop exports %d names, want at most %d: hide one for each that you add", n, maxNames)
	}
	fields := 0
	for f := range reflect.TypeFor[loop.Server]().Fields() {
		if f.IsExported() {
			fields++
		}
	}
	if fields > maxFields {
		t.Errorf("a Server has %d fields, want at most %d", fields, maxFields)
	}
	t.Logf("%d names, %d fields of Server", n, fields)
}

func values(groups []*doc.Value) (n int) {
	for _, g := range groups {
		for _, name := range g.Names {
			if token.IsExported(name) {
				n++
			}
		}
	}
	return n
}

// The ways that the heads of these files tell lead through functions of the files that they name.
func TestWaysExist(t *testing.T) {
	step := regexp.MustCompile(`(?m)^//\t([\w./]+\.go): +(.+)$`)
	for _, name := range []string{"loop/turn.go", "loop/life.go", "loop/arrival.go", "loop/handover/protocol.go"} {
		steps := step.FindAllStringSubmatch(read(t, name), -1)
		if len(steps) < 8 {
			t.Errorf("%s: %d steps of a way, want at least 8", name, len(steps))
		}
		for _, s := range steps {
			file := filepath.Join(filepath.Dir(name), s[1])
			f, err := parser.ParseFile(token.NewFileSet(), file, read(t, file), parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for call := range strings.SplitSeq(s[2], "→") {
				function, _, _ := strings.Cut(strings.TrimSpace(call), " ")
				if !slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
					g, ok := d.(*ast.FuncDecl)
					return ok && g.Name.Name == function
				}) {
					t.Errorf("%s: there is no function %q in %s", name, function, file)
				}
			}
		}
	}
}
