package exampletest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// examples are the folders of examples/.
var examples = []string{"chat", "echo", "gateway", "match", "proxy"}

var (
	programs string   // the directory in which they are built
	sources  []string // what they and their tests are made of
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "examples"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", programs, "./...")
	build.Dir = "../../examples"
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	const files = `{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}` +
		`{{range .EmbedFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`
	list := exec.Command("go", "list", "-deps", "-test", "-f", "{{if .Module}}"+files+"{{end}}", "./...")
	list.Dir = build.Dir
	out, err := list.Output()
	if err != nil {
		fmt.Fprintf(os.Stderr, "go list: %v\n", err)
		return 1
	}
	sources = strings.Split(strings.TrimSpace(string(out)), "\n")
	return m.Run()
}

// built returns the file of a program.
func built(name string) string {
	lookAtSources()
	return filepath.Join(programs, name)
}

// lookAtSources makes the go command test anew when a source of the examples has changed. The
// command repeats an old result while the files that a test has looked at are as they were. It
// does not know what a build within the test has read.
func lookAtSources() {
	for _, file := range sources {
		_, _ = os.Stat(file)
	}
}
