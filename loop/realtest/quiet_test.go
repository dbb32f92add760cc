package realtest_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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

// linkedChild is a program that has this module in it, and runs no server.
func linkedChild() {
	fmt.Println("ready")
	untilInputEnds()
}

// An idle server makes no wake-ups: in most seconds in which the threads of a program that does
// nothing do not switch, its own switch no more than those of a program that has this module in it
// and runs no server. That one is woken twice a second, by the worker pool that gnet makes when a
// program starts. What the runtime does now and then is in few seconds, a server that wakes up by
// itself is awake in most.
func TestIdleServerMakesNoWakeups(t *testing.T) {
	needSlow(t, "it watches three processes for ten seconds")
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc; run it on Linux, as CI does")
	}
	bare, linked := startIdleProgram(t), startChild(t, "linked")
	empty, silent := startChild(t, "quiet"), startChild(t, "quiet")
	for range 1000 {
		c, err := net.Dial("tcp", silent.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		mustEcho(t, c, "x")
	}
	const settle, watch = 2 * time.Second, 10 // seconds in which a program that does nothing rested
	<-time.After(settle)                      // the runtime's own threads come to rest
	children, awake := []*child{linked, empty, silent}, []int{0, 0}
	for rested, all := 0, 0; rested < watch; all++ {
		if all == 10*watch {
			t.Skipf("a program that does nothing rested in %d of %d seconds: nobody could rest here", rested, all)
		}
		others, counts := switchesWithin(t, time.Second, bare, children)
		if others > 0 { // the machine stopped all of them, and they go on
			continue
		}
		rested++
		t.Logf("switches within a second: without a server %d, with one %d", counts[0], counts[1:])
		for i, n := range counts[1:] {
			if n > counts[0]+2 { // a wake-up of the pool may fall into the next second
				awake[i]++
			}
		}
	}
	t.Logf("of %d seconds in which a program that does nothing rested, the servers were awake in %v", watch, awake)
	if slices.Max(awake) > watch/2 {
		t.Errorf("servers that have nothing to do were awake in %v of %d seconds", awake, watch)
	}
}

// switchesWithin counts the context switches of processes in the time that comes, which is a little
// longer for the first one.
func switchesWithin(t *testing.T, watch time.Duration, first *child, all []*child) (others int, counts []int) {
	others = -contextSwitches(first.cmd.Process.Pid)
	for _, c := range all {
		counts = append(counts, -contextSwitches(c.cmd.Process.Pid))
	}
	<-time.After(watch)
	for i, c := range all {
		counts[i] += contextSwitches(c.cmd.Process.Pid)
	}
	return others + contextSwitches(first.cmd.Process.Pid), counts
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
func contextSwitches(pid int) (n int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil { // a thread that has ended since
			continue
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
