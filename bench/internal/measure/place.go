//go:build linux

package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Apart has this process run on its first core and another on its last, so that chance does not
// decide what it costs to wake each other. free lets this process run everywhere again.
func Apart(other int) (free func(), err error) {
	var all, first, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	if all.Count() < 2 {
		return nil, errors.New("there is one core")
	}
	for c, seen := 0, 0; seen < all.Count(); c++ {
		if all.IsSet(c) {
			if seen++; seen == 1 {
				first.Set(c)
			}
			last.Zero()
			last.Set(c)
		}
	}
	if err := bind(other, &last); err != nil {
		return nil, err
	}
	return func() { _ = bind(os.Getpid(), &all) }, bind(os.Getpid(), &first)
}

// bind looks at a process's threads until none was started meanwhile: what a thread starts runs
// where that thread may.
func bind(pid int, set *unix.CPUSet) error {
	bound := make(map[string]bool)
	for more := true; more; {
		more = false
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return err
		}
		for _, t := range tasks {
			if bound[t] {
				continue
			}
			bound[t], more = true, true
			id, _ := strconv.Atoi(filepath.Base(t))
			if err := unix.SchedSetaffinity(id, set); err != nil && err != unix.ESRCH { // it has ended
				return os.NewSyscallError("sched_setaffinity", err)
			}
		}
	}
	return nil
}
