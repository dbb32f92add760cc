package loopwheel_test

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// What is larger is to be divided. Most files and functions are far smaller.
const (
	maxFileLines, maxFuncLines = 400, 60

	// A table of cases is long without being hard to read.
	maxTestFuncLines = 120

	// medianFuncLines is what half of the functions keep to.
	medianFuncLines = 10
)

func TestSizes(t *testing.T) {
	var lengths []int
	longestFile, longestFunc := 0, 0
	for _, f := range sources(t) {
		n := fset.File(f.ast.Pos()).LineCount()
		longestFile = max(longestFile, n)
		most := maxFuncLines
		if f.isTest() {
			most = maxTestFuncLines
		}
		if n > maxFileLines {
			t.Errorf("%s has %d lines; at most %d", f.name, n, maxFileLines)
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			begin, end := fset.Position(fn.Pos()), fset.Position(fn.End())
			n := end.Line - begin.Line + 1
			if !f.isTest() {
				lengths = append(lengths, n)
				longestFunc = max(longestFunc, n)
			}
			if n > most {
				t.Errorf("%s: %s has %d lines; at most %d", begin, fn.Name.Name, n, most)
			}
		}
	}
	slices.Sort(lengths)
	median := lengths[len(lengths)/2]
	t.Logf("longest file %d, longest function %d, median %d of %d functions", longestFile, longestFunc, median, len(lengths))
	if median > medianFuncLines {
		t.Errorf("the median function has %d lines; at most %d", median, medianFuncLines)
	}
}

// What a Conn may have at most, the fields of its groups included: each one is read by whoever
// wants to know what a connection is.
const maxConnFields, maxConnBools = 25, 5

func TestConnIsSmall(t *testing.T) {
	structs := make(map[string]*ast.StructType)
	for _, f := range sources(t) {
		if f.dir() == "loop" && !f.isTest() {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if spec, ok := n.(*ast.TypeSpec); ok {
					if s, ok := spec.Type.(*ast.StructType); ok {
						structs[spec.Name.Name] = s
					}
				}
				return true
			})
		}
	}
	fields, bools := countFields(structs, "Conn")
	t.Logf("a Conn has %d fields, %d of them booleans", fields, bools)
	if fields > maxConnFields || bools > maxConnBools || fields == 0 {
		t.Errorf("a Conn has %d fields, %d of them booleans; at most %d and %d", fields, bools, maxConnFields, maxConnBools)
	}
}

// countFields counts the fields of a struct, those of structs that it holds by value in their
// place.
func countFields(structs map[string]*ast.StructType, name string) (fields, bools int) {
	for _, f := range structs[name].Fields.List {
		n := max(1, len(f.Names))
		id, _ := f.Type.(*ast.Ident)
		switch {
		case id != nil && structs[id.Name] != nil:
			f, b := countFields(structs, id.Name)
			fields, bools = fields+n*f, bools+n*b
		case id != nil && id.Name == "bool":
			fields, bools = fields+n, bools+n
		default:
			fields += n
		}
	}
	return fields, bools
}

func TestPackageComments(t *testing.T) {
	documented := make(map[string]bool)
	for _, f := range sources(t) {
		if !f.isTest() {
			documented[f.dir()] = documented[f.dir()] || f.ast.Doc.Text() != ""
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

func TestDocComments(t *testing.T) {
	for _, f := range sources(t) {
		if f.isTest() || f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && isExported(d.Recv) {
					checkDoc(t, d.Name, d.Doc)
				}
			case *ast.GenDecl:
				checkGroup(t, d)
			}
		}
	}
}

// isExported reports whether a receiver's type can be seen from outside, or there is none.
func isExported(recv *ast.FieldList) bool {
	if recv == nil {
		return true
	}
	typ := recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// checkGroup checks types, constants and variables. One comment may serve a group of constants or
// variables.
func checkGroup(t *testing.T, d *ast.GenDecl) {
	t.Helper()
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if !s.Name.IsExported() {
				continue
			}
			doc := s.Doc
			if doc == nil && !d.Lparen.IsValid() {
				doc = d.Doc
			}
			checkDoc(t, s.Name, doc)
			if iface, ok := s.Type.(*ast.InterfaceType); ok {
				checkMethods(t, s.Name.Name, iface)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
					undocumented(t, name.Pos(), name.Name)
				}
			}
		}
	}
}

// checkMethods wants a comment at each method of an interface.
func checkMethods(t *testing.T, name string, iface *ast.InterfaceType) {
	t.Helper()
	for _, m := range iface.Methods.List {
		if len(m.Names) == 1 && m.Names[0].IsExported() && m.Doc == nil && m.Comment == nil {
			undocumented(t, m.Pos(), name+"."+m.Names[0].Name)
		}
	}
}

// checkDoc wants a comment whose first words are about the name.
func checkDoc(t *testing.T, name *ast.Ident, doc *ast.CommentGroup) {
	t.Helper()
	text := doc.Text()
	if text == "" {
		undocumented(t, name.Pos(), name.Name)
		return
	}
	words := strings.Fields(text)
	for _, w := range words[:min(len(words), 3)] {
		if strings.Trim(w, ",:.") == name.Name {
			return
		}
	}
	t.Errorf("%s: the comment on %s does not begin with its name", fset.Position(name.Pos()), name.Name)
}

func undocumented(t *testing.T, pos token.Pos, name string) {
	t.Helper()
	t.Errorf("%s: %s has no doc comment", fset.Position(pos), name)
}
