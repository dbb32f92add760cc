package loopwheel_test

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"
)

// exported is what can be named in the documents: for each package what is in it, and for each type
// of any package its methods and fields.
type exported map[string]map[string]bool

func (e exported) add(of, name string) {
	if !ast.IsExported(name) {
		return
	}
	if e[of] == nil {
		e[of] = make(map[string]bool)
	}
	e[of][name] = true
}

func (e exported) addFunc(pkg string, fn *ast.FuncDecl) {
	if fn.Recv == nil {
		e.add(pkg, fn.Name.Name)
		return
	}
	of := fn.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
			continue
		case *ast.IndexExpr:
			of = t.X
			continue
		case *ast.IndexListExpr:
			of = t.X
			continue
		case *ast.Ident:
			e.add(t.Name, fn.Name.Name)
		}
		return
	}
}

func (e exported) addSpec(pkg string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			e.add(pkg, n.Name)
		}
	case *ast.TypeSpec:
		e.add(pkg, s.Name.Name)
		var members *ast.FieldList
		switch t := s.Type.(type) {
		case *ast.StructType:
			members = t.Fields
		case *ast.InterfaceType:
			members = t.Methods
		default:
			return
		}
		for _, m := range members.List {
			for _, n := range m.Names {
				e.add(s.Name.Name, n.Name)
			}
			if embedded, ok := m.Type.(*ast.Ident); ok && len(m.Names) == 0 {
				e.add(s.Name.Name, embedded.Name)
			}
		}
	}
}

// namesThere returns what this module exports to others.
func namesThere(t *testing.T) exported {
	t.Helper()
	there := make(exported)
	for _, f := range sources(t) {
		if f.isTest() || strings.Contains(f.dir(), "internal") || strings.HasPrefix(f.dir(), "examples") {
			continue
		}
		pkg := path.Base(f.dir())
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				there.addFunc(pkg, d)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					there.addSpec(pkg, s)
				}
			}
		}
	}
	return there
}

// othersNames are names of others' types, and of variables, that are called like ours.
var othersNames = map[string]bool{
	"loop.Post":      true, // of a variable, in docs/distributed.md
	"Client.Enqueue": true, // asynq's
	"Client.Stop":    true, // gnet's
}

// Each exported name in the documents, such as Conn.OnIdle or loop.Server.TLS, is there.
func TestNamesExist(t *testing.T) {
	there := namesThere(t)
	dotted := regexp.MustCompile(`\b([A-Za-z]+)\.([A-Z][A-Za-z0-9]*)(?:\.([A-Z][A-Za-z0-9]*))?`)
	checked := 0
	for _, name := range documents(t) {
		for _, code := range regexp.MustCompile("`[^`\n]+`").FindAllString(prose(t, name), -1) {
			for _, m := range dotted.FindAllStringSubmatch(code, -1) {
				if there[m[1]] == nil || othersNames[m[1]+"."+m[2]] {
					continue
				}
				checked++
				if !there[m[1]][m[2]] || m[3] != "" && there[m[2]] != nil && !there[m[2]][m[3]] {
					t.Errorf("%s: %s is not there", name, m[0])
				}
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d names were found: does this still see them?", checked)
	}
}
