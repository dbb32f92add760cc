package loop_test

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/testhook"
)

// openFiles returns how many descriptors this process has.
func openFiles(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(fds)
}

// More loops than there are descriptors for are an error of Start, wherever it was that they ran
// out. It says what to do, and leaves nothing behind.
func TestLoopsWithoutDescriptors(t *testing.T) {
	if testhook.DefaultEngine() == "net" {
		t.Skip("loops of the engine on Go's own net have no descriptors: run it without LOOPWHEEL_ENGINE=net, as CI does, too")
	}
	startMany := func() error {
		srv := &loop.Server{Addr: "tcp://127.0.0.1:0", NumLoops: 1000, Accept: silent}
		return srv.Start(t.Context())
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	limit := func(lim syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { limit(old) })
	before := openFiles(t)
	for spare := range 12 {
		limit(syscall.Rlimit{Cur: uint64(before + 20 + spare), Max: old.Max})
		err := startMany()
		limit(old)
		if err == nil || !strings.Contains(err.Error(), "lower Server.NumLoops, which is 1000") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	}
	if after := openFiles(t); after > before+2 { // Go's own poller may be new
		t.Errorf("%d descriptors, %d before", after, before)
	}
}
