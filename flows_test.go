package loopwheel_test

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

// maxStops is how many stops a flow of docs/architecture.md may have.
const maxStops = 8

// Each stop of the two flows that docs/architecture.md follows is there: the file, and in it the
// method.
func TestFlows(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Two flows\n")
	section, _, _ = strings.Cut(section, "\n## ")
	methods := methodsOf(t)
	stop := regexp.MustCompile("(?m)^([0-9]+)\\. `([^`]+)`: `([^`]+)`")
	flows, stops := 0, 0
	for _, m := range stop.FindAllStringSubmatch(section, -1) {
		if m[1] == "1" {
			flows, stops = flows+1, 0
		}
		if stops++; stops > maxStops {
			t.Errorf("flow %d has more than %d stops", flows, maxStops)
		}
		if !methods[m[2]+":"+m[3]] {
			t.Errorf("flow %d: there is no %s in %s", flows, m[3], m[2])
		}
	}
	if flows != 2 {
		t.Errorf("%d flows, want 2", flows)
	}
}

// methodsOf returns all methods, as "file:Type.Method".
func methodsOf(t *testing.T) map[string]bool {
	methods := make(map[string]bool)
	for _, f := range sources(t) {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			recv := fn.Recv.List[0].Type
			if star, ok := recv.(*ast.StarExpr); ok {
				recv = star.X
			}
			if id, ok := recv.(*ast.Ident); ok {
				methods[f.name+":"+id.Name+"."+fn.Name.Name] = true
			}
		}
	}
	return methods
}
