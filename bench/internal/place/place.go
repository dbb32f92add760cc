// Package place has two processes run on the same core, or each on one of its own. What it costs to
// wake each other is half of what a message costs, and is not left to chance then.
package place

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Usage is what a flag for it says.
const Usage = "have server and client run on the `same` core, or each on one of its own (apart)"

// Check returns an error for what Bind does not know. Without a place, "", all is left to the
// system.
func Check(how string) error {
	switch how {
	case "", "same", "apart":
		return nil
	}
	return fmt.Errorf("-place %s: want same or apart", how)
}

// Bind has two processes, with all threads that they have and will start, run on the first core
// that this one may use; or, apart, the server on the last. free has the client run where it was
// allowed to.
func Bind(how string, server, client int) (free func() error, err error) {
	if err := Check(how); err != nil || how == "" {
		return func() error { return nil }, err
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(client, &all); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	clients, servers := cores(&all)
	switch {
	case how == "same":
		servers = clients
	case servers == clients:
		return nil, errors.New("-place apart: there is one core")
	}
	if err := bind(server, only(servers)); err != nil {
		return nil, err
	}
	return func() error { return bind(client, all) }, bind(client, only(clients))
}

// cores returns the first and the last of a set.
func cores(set *unix.CPUSet) (first, last int) {
	first = -1
	for c, left := 0, set.Count(); left > 0; c++ {
		if set.IsSet(c) {
			left--
			if last = c; first < 0 {
				first = c
			}
		}
	}
	return first, last
}

func only(core int) (set unix.CPUSet) {
	set.Set(core)
	return set
}

// bind looks at the threads again until there is none that was started meanwhile: what a thread
// starts runs where it may itself.
func bind(pid int, set unix.CPUSet) error {
	bound := make(map[int]bool)
	for more := true; more; {
		more = false
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return err
		}
		for _, t := range tasks {
			id, _ := strconv.Atoi(filepath.Base(t))
			if bound[id] {
				continue
			}
			bound[id], more = true, true
			if err := unix.SchedSetaffinity(id, &set); err != nil && err != unix.ESRCH { // it has ended
				return os.NewSyscallError("sched_setaffinity", err)
			}
		}
	}
	return nil
}
