package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// quotaPeriod is how often a server gets its part of a core, in microseconds. It is short, so that
// what waits for it does not wait for long.
const quotaPeriod = 5000

// limit lets a server use no more than this percentage of a core, all its threads together, by a
// control group of the kernel's. Without it redis-benchmark, which has one thread and takes as long
// for a request as a server does, is what both rates end at.
func (s *server) limit(percent int) error {
	quota := strconv.Itoa(percent * quotaPeriod / 100)
	name := fmt.Sprintf("loopwheel-bench-%d", s.cmd.Process.Pid)
	var first error
	for _, kind := range []struct{ dir, file, value string }{
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", quota}, // version 1
		{"/sys/fs/cgroup", "cpu.max", quota + " " + strconv.Itoa(quotaPeriod)},
	} {
		s.group = filepath.Join(kind.dir, name)
		err := os.Mkdir(s.group, 0o755)
		if err == nil && kind.file == "cpu.cfs_quota_us" {
			err = s.set("cpu.cfs_period_us", strconv.Itoa(quotaPeriod))
		}
		if err == nil {
			err = s.set(kind.file, kind.value)
		}
		if err == nil {
			return s.set("cgroup.procs", strconv.Itoa(s.cmd.Process.Pid))
		}
		_ = os.Remove(s.group)
		if first == nil {
			first = err
		}
	}
	return fmt.Errorf("-quota takes the right to make a control group of the CPU: %w", first)
}

func (s *server) set(file, value string) error {
	f, err := os.OpenFile(filepath.Join(s.group, file), os.O_WRONLY, 0) // which must be there
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	_ = f.Close()
	return err
}

func limitBoth(a, b *server, percent int) error {
	if percent == 0 {
		return nil
	}
	if percent < 20 || percent > 100 {
		return fmt.Errorf("-quota %d: want 20 to 100", percent)
	}
	if err := a.limit(percent); err != nil {
		return err
	}
	return b.limit(percent)
}
