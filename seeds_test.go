package loopwheel_test

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// What tests may use of math/rand/v2: generators that are given their seeds. Everything else there
// draws anew each time, so that what fails once cannot be seen again. Seeds come from internal/seed.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Source", "Zipf"}

func TestRandomnessHasSeeds(t *testing.T) {
	for _, f := range sources(t) {
		if !f.isTest() || strings.HasPrefix(f.dir(), "examples/kv") { // where that is under way
			continue
		}
		for _, used := range drawn(f) {
			t.Errorf("%s: rand.%s has no seed: take rand.New(rand.NewPCG(seed.Pick(t, 1), 2))", fset.Position(used.Pos()), used.Sel.Name)
		}
	}
}

// drawn returns what a file uses of math/rand that has no seed.
func drawn(f sourceFile) (used []*ast.SelectorExpr) {
	name := randomName(f)
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && !slices.Contains(seeded, s.Sel.Name) {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == name {
				used = append(used, s)
			}
		}
		return true
	})
	return used
}

// randomName is what a file calls math/rand, or math/rand/v2. "": it imports neither.
func randomName(f sourceFile) string {
	for _, spec := range f.ast.Imports {
		if path := spec.Path.Value; path != `"math/rand"` && path != `"math/rand/v2"` {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return "rand"
	}
	return ""
}
