//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// raiseLimits has the system allow n connections with both of their ends. restore undoes it.
func raiseLimits(n int) (restore func(), err error) {
	var old []func()
	restore = func() {
		for _, f := range old {
			f()
		}
	}
	descriptors := n + n/16 + 4096
	for _, file := range []struct{ name, value string }{
		{"/proc/sys/fs/nr_open", strconv.Itoa(max(descriptors, 1<<20))},
		{"/proc/sys/fs/file-max", strconv.Itoa(max(3*n, 1<<20))},
		{"/proc/sys/net/core/somaxconn", "16384"},
		{"/proc/sys/net/ipv4/tcp_max_syn_backlog", "16384"},
		{"/proc/sys/net/ipv4/tcp_mem", "2000000 3000000 4000000"},
	} {
		was, err := os.ReadFile(file.name)
		if err != nil {
			continue // this system does not have it
		}
		if first(string(was)) >= first(file.value) {
			continue
		}
		if err := os.WriteFile(file.name, []byte(file.value), 0); err != nil {
			fmt.Fprintf(os.Stderr, "%s stays as it is: %v\n", file.name, err)
			continue
		}
		old = append(old, func() { _ = os.WriteFile(file.name, was, 0) })
	}
	limit := syscall.Rlimit{Cur: uint64(descriptors), Max: uint64(descriptors)}
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil || now.Cur >= limit.Cur {
		return restore, err
	}
	if now.Max > limit.Max {
		limit.Max = now.Max
	}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		fmt.Fprintf(os.Stderr, "a process may have %d files open: several servers share the connections\n", now.Cur)
	}
	return restore, nil
}

// first returns the first number of a setting.
func first(value string) (n int) {
	_, _ = fmt.Sscan(value, &n)
	return n
}

// descriptors returns how many files a process may have open.
func descriptors() int {
	var now syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now) != nil {
		return 1024
	}
	return int(min(now.Cur, 4<<20))
}

// kernelMemory returns the bytes of the kernel's own objects: sockets, files, entries of epoll.
func kernelMemory() int { return memInfo("Slab:") + memInfo("Percpu:") }

// memInfo returns a line of /proc/meminfo in bytes.
func memInfo(name string) int { return kilobytes("/proc/meminfo", name) << 10 }

// anonymous returns the bytes that a process has of its own: not those of its program's file.
func anonymous(pid int) int { return kilobytes(fmt.Sprintf("/proc/%d/status", pid), "RssAnon:") << 10 }

func kilobytes(file, name string) (kb int) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			_, _ = fmt.Sscan(value, &kb)
		}
	}
	return kb
}
