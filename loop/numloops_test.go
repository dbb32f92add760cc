package loop_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/loop"
)

// Unless NumLoops is set, a server leaves one P to goroutines. It does not change GOMAXPROCS,
// however that was set.
func TestAPIsLeftToGoroutines(t *testing.T) {
	const variable = "LOOPWHEEL_TEST_NUMLOOPS"
	if os.Getenv(variable) != "" {
		for _, asked := range []int{0, 3} {
			before := runtime.GOMAXPROCS(0)
			srv := &loop.Server{Addr: "tcp://127.0.0.1:0", Accept: silent, NumLoops: asked}
			ctx, cancel := context.WithCancel(context.Background())
			if err := srv.Start(ctx); err != nil {
				t.Fatal(err)
			}
			fmt.Printf("loops %d, GOMAXPROCS %d to %d;", len(srv.Loops()), before, runtime.GOMAXPROCS(0))
			cancel()
			if err := srv.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for procs, want := range map[int]int{1: 1, 2: 1, 5: 4} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestAPIsLeftToGoroutines$")
		cmd.Env = append(os.Environ(), variable+"=1", fmt.Sprint("GOMAXPROCS=", procs))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, loops := range []int{want, 3} {
			if line := fmt.Sprintf("loops %d, GOMAXPROCS %d to %d;", loops, procs, procs); !strings.Contains(string(out), line) {
				t.Errorf("want %q, got %s", line, out)
			}
		}
	}
}
