package main

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A disk that is full: what was not confirmed is refused, reads go on, and once there is room again
// writes do, too. What was confirmed is there after a kill -9.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, "-dir", dir, "-appendfsync", "always")
	limit := func(n uint64) {
		t.Helper()
		if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: unix.RLIM_INFINITY}, nil); err != nil {
			t.Skipf("no limit can be set to the files of another process: %v", err)
		}
	}
	c, other := dial(t, p.addr), dial(t, p.addr)
	c.want("SET before 1", "OK")
	limit(64 << 10) // bytes: the write that crosses it is cut in the middle
	value := strings.Repeat("v", 1000)
	confirmed := 0
	for got := ""; !strings.HasPrefix(got, "(error) MISCONF Errors writing to the AOF file"); {
		if confirmed > 1000 {
			t.Fatal("the disk is not full")
		}
		if got = c.do("RPUSH l " + value); got == fmt.Sprint(confirmed+1) {
			confirmed++
		}
	}
	if confirmed < 50 {
		t.Errorf("%d writes were confirmed, want what 64 KiB hold", confirmed)
	}
	other.want("GET before", "1")
	if got := other.do("SET refused 1"); !strings.HasPrefix(got, "(error) MISCONF") {
		t.Errorf("a write on a full disk: %s", got)
	}
	if got := other.do("INFO persistence"); !strings.Contains(got, "aof_last_write_status:err") {
		t.Error(got)
	}
	limit(unix.RLIM_INFINITY)
	waitFor(t, func() bool { return other.do("SET after 1") == "OK" })
	p.kill()
	c = dial(t, startProcess(t, "-dir", dir).addr)
	c.want("MGET before after refused", "[1 1 (nil)]")
	var n int
	if _, err := fmt.Sscan(c.do("LLEN l"), &n); err != nil || n < confirmed || n > confirmed+1 {
		t.Errorf("%d elements, %d were confirmed", n, confirmed)
	}
}
