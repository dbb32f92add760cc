package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The command that README.md adds is added, to a copy of the program, and works.
func TestReadmeCommand(t *testing.T) {
	table, function := readmeCommand(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "added.go")
	code := "package store\n\nimport \"bytes\"\n\nvar _ = register([]Command{\n" + table + "\n})\n\n" + function
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("store/added.go")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {here: file}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "kv")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data := t.TempDir()
	p := startProgram(t, program, "-dir", data, "-appendfsync", "always")
	c := dial(t, p.addr)
	for _, step := range []string{"CAS k a b: 0", "SET k a EX 100000: OK", "CAS k x b: 0", "CAS k a b: 1", "GET k: b",
		"RPUSH l v: 1", "CAS l v w: (error) WRONGTYPE Operation against a key holding the wrong kind of value",
		"CAS k: (error) ERR wrong number of arguments for 'cas' command"} {
		line, want, _ := strings.Cut(step, ": ")
		c.want(line, want)
	}
	var left int // what passes meanwhile is the machine's
	if _, err := fmt.Sscan(c.do("TTL k"), &left); err != nil || left > 100_000 || left < 99_000 {
		t.Errorf("%d s are left of 100,000, %v", left, err)
	}
	p.kill()
	p = startProgram(t, program, "-dir", data) // it was logged, too
	dial(t, p.addr).want("GET k", "b")
	p.kill()
}

// readmeCommand returns the line of the table and the function.
func readmeCommand(t *testing.T) (table, function string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "## A command in ten lines")
	_, rest, _ = strings.Cut(rest, "```go\n")
	code, _, ok := strings.Cut(rest, "```")
	table, function, _ = strings.Cut(code, "\n")
	if !ok || !strings.HasPrefix(table, "{Name: ") {
		t.Fatalf("README.md does not show a command: %q", code)
	}
	if n := strings.Count(strings.TrimSpace(code), "\n"); n > 14 {
		t.Errorf("the command takes %d lines", n)
	}
	return table, function
}
