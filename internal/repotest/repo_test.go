package repotest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	modulePath = "github.com/loopwheel/loopwheel"

	maxFuncLines, maxFileLines, maxTestLines = 90, 700, 1000
	maxColumns                               = 100
	maxBytes                                 = 300 << 10
)

// root is the repository's directory. The tests run there.
var root string

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	var err error
	if root, err = os.Getwd(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// rootFiles is what the root holds. A checkout's own files are hidden.
var rootFiles = []string{
	"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md",
	"doc.go", "example_test.go", "go.mod", "go.sum",
	"bench", "codec", "demos", "docs", "examples", "handler", "internal", "loop", "timing",
}

// trackedFiles returns what git has, as path and mode. It skips the test where there is no
// checkout.
func trackedFiles(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-s", "-z").Output()
	if err != nil || len(out) == 0 {
		t.Skipf("there is no git, or this is no checkout: %v", err)
	}
	files := make(map[string]string)
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		about, name, _ := strings.Cut(entry, "\t")
		mode, _, _ := strings.Cut(about, " ")
		files[name] = mode
	}
	return files
}

// Nothing that is tracked is large or a compiled program, only scripts are executable, and the root
// is simple.
func TestTrackedFiles(t *testing.T) {
	for name, mode := range trackedFiles(t) {
		first, _, _ := strings.Cut(name, "/")
		if !strings.HasPrefix(first, ".") && !slices.Contains(rootFiles, first) {
			t.Errorf("%s: the root has no place for it", name)
		}
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		} else if err != nil {
			t.Fatal(err)
		}
		if len(data) > maxBytes {
			t.Errorf("%s has %d bytes, more than %d", name, len(data), maxBytes)
		}
		if isProgram(data) {
			t.Errorf("%s is a compiled program", name)
		}
		if script := strings.HasPrefix(string(data), "#!"); mode == "100755" && !script {
			t.Errorf("%s is executable, but no script", name)
		}
	}
}

// isProgram reports whether a file begins as one of ELF, Mach-O or PE.
func isProgram(data []byte) bool {
	for _, magic := range []string{"\x7fELF", "\xfe\xed\xfa\xce", "\xfe\xed\xfa\xcf", "\xce\xfa\xed\xfe", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe", "MZ"} {
		if strings.HasPrefix(string(data), magic) {
			return true
		}
	}
	return false
}

// A sourceFile is one Go file, whatever system it is built for.
type sourceFile struct {
	name   string // from the root, with slashes
	module string // the directory of its go.mod, from the root: "." for the main one
	ast    *ast.File
}

func (f sourceFile) dir() string  { return path.Dir(f.name) }
func (f sourceFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

var fset = token.NewFileSet()

// sources returns all Go files of all modules of the repository.
func sources(t *testing.T) (files []sourceFile) {
	t.Helper()
	// The go command repeats an old result unless a file has changed that a test has read. It knows
	// of no change of directory before the first test.
	if err := os.Chdir(root); err != nil {
		t.Fatal(err)
	}
	modules := []string{"."}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				modules = append(modules, name)
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		name = filepath.ToSlash(name)
		module := "."
		for _, m := range modules {
			if strings.HasPrefix(name, m+"/") {
				module = m
			}
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		files = append(files, sourceFile{name, module, f})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// longTests are above the limit until they are rewritten.
var longTests = []string{"TestBrokenCodecsFail", "TestCallsByTheMillion"}

// A function, a file and a line of a comment are short enough to be read.
func TestSizes(t *testing.T) {
	for _, f := range sources(t) {
		most := maxFileLines
		if f.isTest() {
			most = maxTestLines
		}
		if n := fset.File(f.ast.Pos()).LineCount(); n > most {
			t.Errorf("%s has %d lines, more than %d", f.name, n, most)
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				begin, end := fset.Position(fn.Pos()), fset.Position(fn.End())
				if n := end.Line - begin.Line + 1; n > maxFuncLines && !slices.Contains(longTests, fn.Name.Name) {
					t.Errorf("%s: %s has %d lines, more than %d", begin, fn.Name.Name, n, maxFuncLines)
				}
			}
		}
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				checkComment(t, fset.Position(c.Pos()), c.Text)
			}
		}
	}
}

// checkComment checks the columns of a comment that has its lines for itself. A comment after code
// is short or long with it; a link or a command cannot be broken.
func checkComment(t *testing.T, at token.Position, text string) {
	t.Helper()
	if strings.HasPrefix(text, "//go:") || strings.HasPrefix(text, "//\t") || strings.Contains(text, "://") {
		return
	}
	for i, line := range strings.Split(text, "\n") {
		before := 0
		if i == 0 {
			before = at.Column - 1
		}
		if before > 8 {
			continue // after code
		}
		if n := before + utf8.RuneCountInString(strings.TrimPrefix(line, "\t")); n > maxColumns {
			t.Errorf("%s:%d: a comment of %d columns, more than %d", at.Filename, at.Line+i, n, maxColumns)
		}
	}
}

// The lines of the documents are short, but for tables, links, and code.
func TestDocumentColumns(t *testing.T) {
	for _, name := range documents(t) {
		for line := range strings.Lines(prose(t, name)) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "|") || strings.Contains(line, "](") || strings.Contains(line, "://") {
				continue
			}
			if n := utf8.RuneCountInString(line); n > maxColumns {
				t.Errorf("%s: a line of %d columns, more than %d: %s", name, n, maxColumns, line)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents returns all Markdown of the repository.
func documents(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "*/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

// prose returns a document without its code blocks.
func prose(t *testing.T, name string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(read(t, name), "")
}
