package exampletest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// examples are the folders of examples/.
var examples = []string{"chat", "echo", "gateway", "proxy"}

var programs string // the directory in which they are built

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
	return m.Run()
}

// built returns the file of a program.
func built(name string) string { return filepath.Join(programs, name) }
