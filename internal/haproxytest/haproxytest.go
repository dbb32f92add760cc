// Package haproxytest runs HAProxy for the tests of several packages.
package haproxytest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Front stands for the address where HAProxy listens, in what Run is given.
const Front = "$FRONT"

// Run runs HAProxy in TCP mode until the test ends, with what config adds to its defaults, and
// sections, the first of which goes on with the defaults. It returns where it listens when it does.
// Where it is not installed the test is skipped.
func Run(t testing.TB, config string) (front string) {
	t.Helper()
	haproxy, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("haproxy is not installed (apt-get install haproxy); CI has it")
	}
	testkit.NeedFiles(t, 500) // it does not start with less
	front = testkit.FreeAddr(t)
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	config = "global\n  maxconn 200\ndefaults\n  mode tcp\n" + strings.ReplaceAll(config, Front, front)
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
	for deadline := time.Now().Add(time.Minute); !listens(front); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			end()
			t.Fatalf("haproxy does not listen: %s", &out)
		}
	}
	return front
}

func listens(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
