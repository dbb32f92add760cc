package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestMain lets the test's own binary be the program, for tests that kill it.
func TestMain(m *testing.M) {
	if os.Getenv("KV_TEST_PROGRAM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A process is the program in a process of its own.
type process struct {
	cmd  *exec.Cmd
	addr string
	log  *bytes.Buffer
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	return startProgram(t, os.Args[0], args...)
}

func startProgram(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program, append([]string{"-addr", "tcp://127.0.0.1:0"}, args...)...), log: new(bytes.Buffer)}
	p.cmd.Env = append(os.Environ(), "KV_TEST_PROGRAM=1")
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	buf := make([]byte, 4096)
	n, err := out.Read(buf)
	if err != nil {
		_ = p.cmd.Wait()
		t.Fatalf("it did not start: %s", p.log)
	}
	line, _, _ := strings.Cut(string(buf[:n]), "\n")
	_, p.addr, _ = strings.Cut(line, "tcp://")
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-h"}, 0, "Usage: kv [flags]"},
		{[]string{"-shards", "0"}, 2, "want 1 to 1024"},
		{[]string{"-maxmemory", "many"}, 2, "want a number of bytes"},
		{[]string{"-appendfsync", "daily"}, 2, "want always, everysec or no"},
		{[]string{"-notify-keyspace-events", "Q"}, 2, "want letters of"},
		{[]string{"-timeout", "-1s"}, 2, "it is negative"},
		{[]string{"-log", "loud"}, 2, "want debug, info"},
		{[]string{"what"}, 2, "flags only"},
		{[]string{"-addr", "nowhere"}, 2, "want tcp://host:port or unix://path"},
		{[]string{"-dir", "/dev/null/x"}, 1, "-dir: "},
	} {
		var out, errOut bytes.Buffer
		if code := run(context.Background(), tt.args, &out, &errOut); code != tt.code {
			t.Errorf("%q: code %d, want %d", tt.args, code, tt.code)
		}
		if got := out.String() + errOut.String(); !strings.Contains(got, tt.want) {
			t.Errorf("%q: %q, want %q in it", tt.args, got, tt.want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "100": 100, "1k": 1000, "1kb": 1024, "2MB": 2 << 20, "1g": 1e9, "1gb": 1 << 30} {
		if got, err := parseSize(in); got != want || err != nil {
			t.Error(in, got, err)
		}
	}
	for _, in := range []string{"", "kb", "-1", "1tb", "1kbx", "99999999999gb"} {
		if got, err := parseSize(in); err == nil {
			t.Error(in, got)
		}
	}
}
