package repotest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const modulePath = "github.com/loopwheel/loopwheel"

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

func read(t *testing.T, name string) string {
	t.Helper()
	// The go command repeats an old result unless a file has changed that a test has read. It knows
	// of no change of directory before the first test.
	if err := os.Chdir(root); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func glob(t *testing.T, patterns ...string) (names []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

// documents returns all Markdown of the repository.
func documents(t *testing.T) []string { return glob(t, "*.md", "docs/*.md", "*/*/README.md") }

// A fence is a code block of a document. What follows the language is the name of the file that
// the block is.
type fence struct{ language, file, code string }

var fences = regexp.MustCompile("(?ms)^```([a-z]*) ?([^\n]*)\n(.*?)^```$")

// codeIn returns the code blocks of a document.
func codeIn(t *testing.T, name string) (found []fence) {
	t.Helper()
	for _, m := range fences.FindAllStringSubmatch(read(t, name), -1) {
		found = append(found, fence{m[1], m[2], m[3]})
	}
	return found
}

// prose returns a document without its code blocks.
func prose(t *testing.T, name string) string {
	t.Helper()
	return fences.ReplaceAllString(read(t, name), "")
}
