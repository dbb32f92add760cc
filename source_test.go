package loopwheel_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// modulePath is this module's import path.
const modulePath = "github.com/loopwheel/loopwheel"

// A sourceFile is one Go file of this module, whatever it is built for.
type sourceFile struct {
	name string // from the module's root, with slashes
	ast  *ast.File
}

func (f sourceFile) dir() string  { return path.Dir(f.name) }
func (f sourceFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

var fset = token.NewFileSet()

// sources returns all Go files of this module, but not of modules within it.
func sources(t *testing.T) []sourceFile {
	t.Helper()
	files, err := parseSources()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var parseSources = sync.OnceValues(func() (files []sourceFile, err error) {
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(name, d.Name())
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		files = append(files, sourceFile{filepath.ToSlash(name), f})
		return err
	})
	return files, err
})

// enter returns fs.SkipDir for what does not belong to the module.
func enter(name, base string) error {
	if name == "." {
		return nil
	}
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" {
		return fs.SkipDir
	}
	if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}
