package handover_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// The PID file is the next process's after a handover, and goes with the last one.
func TestPIDFileAtTheEnd(t *testing.T) {
	cfg := serverConfig{Addr: "tcp://" + testkit.FreeAddr(t), Path: filepath.Join(t.TempDir(), "s")}
	first := runWith(t, cfg)
	first.says("serves")
	second := runWith(t, cfg)
	second.says("serves")
	first.ends()
	if text, err := os.ReadFile(cfg.Path + ".pid"); err != nil || string(text) != fmt.Sprintln(second.pid) {
		t.Errorf("after the handover the PID file has %q, %v; want %d", text, err, second.pid)
	}
	_ = second.cmd.Process.Signal(syscall.SIGTERM)
	second.ends()
	if text, err := os.ReadFile(cfg.Path + ".pid"); !os.IsNotExist(err) {
		t.Errorf("at the end the PID file has %q, %v; want none", text, err)
	}
}

// Close removes the PID file of a process in charge, too; a link stays, and what it leads to is empty.
func TestPIDFileAfterClose(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("target", link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "target"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, isLink := range map[string]bool{link: true, filepath.Join(dir, "file"): false} {
		h := serves(t, lines("a"), handover.Config{PIDFile: path})
		if text, err := os.ReadFile(path); string(text) != fmt.Sprintln(os.Getpid()) {
			t.Errorf("%s has %q, %v; want %d", path, text, err, os.Getpid())
		}
		_ = h.Close()
		switch text, err := os.ReadFile(path); {
		case !isLink && !os.IsNotExist(err):
			t.Errorf("after Close %s has %q, %v; want none", path, text, err)
		case isLink && (err != nil || len(text) > 0):
			t.Errorf("after Close %s has %q, %v; want it empty", path, text, err)
		}
	}
}

// A PID file that has another process's number is left alone.
func TestPIDFileOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	h := serves(t, lines("a"), handover.Config{PIDFile: path})
	if err := os.WriteFile(path, []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = h.Close()
	if text, err := os.ReadFile(path); string(text) != "1\n" {
		t.Errorf("after Close the file has %q, %v; want that of the other process", text, err)
	}
}
