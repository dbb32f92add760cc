package testkit

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// HAProxyFront stands for the address where HAProxy listens, in the configuration of HAProxy.
const HAProxyFront = "$FRONT"

// HAProxy runs HAProxy in TCP mode until the test ends. config follows the defaults: first more of
// them, then sections. It returns the address where HAProxy listens. The test is skipped if HAProxy
// is not installed.
func HAProxy(t testing.TB, config string) (front string) {
	t.Helper()
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("haproxy is not installed (apt-get install haproxy); CI has it")
	}
	NeedFiles(t, 500) // it does not start with less
	front = FreeAddr(t)
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	config = "global\n  maxconn 200\ndefaults\n  mode tcp\n" + strings.ReplaceAll(config, HAProxyFront, front)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(haproxy, "-db", "-f", file)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says nothing more
	}
	t.Cleanup(end)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", front); err == nil {
			_ = c.Close()
			return front
		}
		if time.Now().After(deadline) {
			end()
			t.Fatalf("haproxy does not listen: %s", &out)
		}
	}
}
