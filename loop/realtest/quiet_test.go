package realtest_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop"
)

// quietChild is a server with a long idle timeout.
func quietChild() {
	serveChild(&loop.Server{
		Addr:        "tcp://127.0.0.1:0",
		IdleTimeout: time.Hour,
		Accept:      func(*loop.Conn) loop.Handler { return loop.HandlerFunc(echo) },
	})
}

// An idle server makes no wake-ups: in ten seconds its threads switch as often as those of a
// program that does nothing.
func TestIdleServerMakesNoWakeups(t *testing.T) {
	needSlow(t, "it watches three processes for ten seconds")
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc; run it on Linux, as CI does")
	}
	bare, empty, silent := startIdleProgram(t), startChild(t, "quiet"), startChild(t, "quiet")
	for range 1000 {
		c, err := net.Dial("tcp", silent.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		mustEcho(t, c, "x")
	}
	const settle, watch, tries = 2 * time.Second, 10 * time.Second, 4
	<-time.After(settle) // the runtime's own threads come to rest
	for try := 1; ; try++ {
		counts := switchesWithin(t, watch, map[string]*child{"bare": bare, "empty": empty, "silent": silent})
		t.Logf("context switches in %v: %v", watch, counts)
		if max(counts["empty"], counts["silent"]) <= counts["bare"]+5 {
			return
		}
		if try == tries { // a machine that stops and goes on switches, too, but not each time
			t.Fatalf("servers that have nothing to do made more context switches than a program that does nothing: %v", counts)
		}
	}
}

// switchesWithin counts the context switches of processes in the time that comes.
func switchesWithin(t *testing.T, watch time.Duration, all map[string]*child) map[string]int {
	counts := make(map[string]int)
	for name, c := range all {
		counts[name] = -contextSwitches(t, c.cmd.Process.Pid)
	}
	<-time.After(watch)
	for name, c := range all {
		counts[name] += contextSwitches(t, c.cmd.Process.Pid)
	}
	return counts
}

// idleProgram is a Go program that does nothing.
const idleProgram = `package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
}
`

func startIdleProgram(t *testing.T) *child {
	t.Helper()
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "idle")
	if err := os.WriteFile(src, []byte(idleProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", bin, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return startCommand(t, exec.Command(bin))
}

// contextSwitches returns how often the threads of a process were switched, of their own will and
// not.
func contextSwitches(t *testing.T, pid int) (n int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(string(b)) {
			if name, value, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "voluntary_ctxt_switches") {
				k, _ := strconv.Atoi(strings.TrimSpace(value))
				n += k
			}
		}
	}
	return n
}
