package realtest_test

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// childEnv makes the test binary run a program of its own instead of the tests, for tests that need
// a second process.
const childEnv = "LOOPWHEEL_TEST_CHILD"

// children are these programs, by name.
var children = map[string]func(){
	"echo":   echoChild,
	"linked": linkedChild,
	"quiet":  quietChild,
	"busy":   busyChild,

	"clients":         clientsChild,
	"few-descriptors": fewDescriptorsChild,
	"sleepers":        sleepersChild,
	"gib":             gibChild,
	"hash":            hashChild,
	"replies":         repliesChild,
	"readers":         readersChild,
	"broken":          brokenChild,
	"hostile":         hostileChild,
	"beginners":       beginnersChild,
	"boring":          boringChild,
	"idle":            idleChild,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(childEnv); name != "" {
		children[name]()
		return
	}
	os.Exit(m.Run())
}

// A child is a second process. It prints an address when it is ready, and ends when its input does.
type child struct {
	cmd  *exec.Cmd
	end  func()
	addr string
}

func startChild(t *testing.T, name string, env ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, childEnv+"="+name)...)
	return startCommand(t, cmd)
}

func startCommand(t *testing.T, cmd *exec.Cmd) *child {
	t.Helper()
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	var line [200]byte
	n, err := stdout.Read(line[:])
	if err != nil {
		t.Fatalf("child %s: %v", cmd.Path, err)
	}
	return &child{cmd: cmd, end: end, addr: strings.TrimSpace(string(line[:n]))}
}

// untilInputEnds is the life of a child.
func untilInputEnds() {
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
}
