package exampletest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Each example and its tests compile in a module that has nothing else.
func TestCopied(t *testing.T) {
	lookAtSources()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(repository, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range examples {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(repository, "examples", name))); err != nil {
				t.Fatal(err)
			}
			// The versions are those of this repository, because a machine that is offline has no
			// others.
			write(t, filepath.Join(dir, "go.mod"), mod)
			sum, err := os.ReadFile(filepath.Join(repository, "go.sum"))
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "go.sum"), sum)
			for _, args := range [][]string{
				{"mod", "edit", "-module=example.com/copied", "-require=github.com/loopwheel/loopwheel@v0.0.0",
					"-replace=github.com/loopwheel/loopwheel=" + repository},
				{"vet", "-mod=mod", "."},
			} {
				cmd := exec.Command("go", args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("go %q: %v\n%s", args, err, out)
				}
			}
		})
	}
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
