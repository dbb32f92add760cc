//go:build unix

package timing

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quietChild, in the environment, makes this program one that TestSchedulerMakesNoWakeups watches.
const quietChild = "LOOPWHEEL_QUIET_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(quietChild); mode != "" {
		beQuiet(mode)
		return
	}
	os.Exit(m.Run())
}

// beQuiet has a Scheduler, or none, and tells how often its threads were switched whenever it reads
// a line.
func beQuiet(mode string) {
	var s *Scheduler
	if mode != "none" {
		s = NewScheduler(SchedulerConfig{})
	}
	if mode == "far off" {
		for i := range 100_000 {
			must(s.AfterFunc(time.Hour+time.Duration(i)*time.Second, func() {}))
		}
	}
	runtime.GC()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(contextSwitches())
	}
	runtime.KeepAlive(s)
}

// An empty or far-off Scheduler makes no wake-ups: in ten seconds the threads of its process switch
// as often as those of a process without one.
func TestSchedulerMakesNoWakeups(t *testing.T) {
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skip("it watches three processes for ten seconds; to run it set LOOPWHEEL_SLOW=1, as CI does")
	}
	modes := []string{"none", "empty", "far off"}
	ask := make([]func() int, len(modes))
	for i, mode := range modes {
		ask[i] = startQuiet(t, mode)
		ask[i]()
	}
	const settle, watch, tries = 3 * time.Second, 10 * time.Second, 3
	<-time.After(settle) // the runtime's own threads come to rest
	for try := 1; ; try++ {
		var before, counts [3]int
		for i := range modes {
			before[i] = ask[i]()
		}
		<-time.After(watch)
		for i := range modes {
			counts[i] = ask[i]() - before[i]
		}
		t.Logf("context switches in %v: %q %v", watch, modes, counts)
		if slices.Max(counts[:]) <= counts[0]+100 { // of 10,000 ticks; a busy machine switches some tens of times more
			return
		}
		if try == tries {
			t.Fatalf("%q: %v context switches", modes, counts)
		}
	}
}

// startQuiet starts this program anew, to be quiet, and returns what asks it for its context
// switches.
func startQuiet(t *testing.T, mode string) (ask func() int) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), quietChild+"="+mode)
	cmd.Stderr = os.Stderr
	in, out := must(cmd.StdinPipe()), bufio.NewReader(must(cmd.StdoutPipe()))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // which ends it
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return func() int {
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		line, err := out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return must(strconv.Atoi(strings.TrimSpace(line)))
	}
}

// contextSwitches returns how often this process's threads were switched, of their own will and
// not.
func contextSwitches() int {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return int(u.Nvcsw + u.Nivcsw)
}
